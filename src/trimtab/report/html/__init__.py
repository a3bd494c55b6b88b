"""The HTML page of one or more runs: payload, tables and charts, in one offline file."""

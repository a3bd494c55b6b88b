"""Read a run folder back and show it: verdict, HTML page, live terminal view."""

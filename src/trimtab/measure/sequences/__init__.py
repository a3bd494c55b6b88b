"""Measures of whole sequences and episodes: rewards within groups, shape of answers, tools, preferences."""

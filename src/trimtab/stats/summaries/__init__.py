"""Mergeable summaries: moments, extremes, counts and sums."""

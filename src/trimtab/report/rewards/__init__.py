"""Verdicts on rewards, in text and as pages."""

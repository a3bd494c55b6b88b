"""Verdict and page of a stress test of tools."""

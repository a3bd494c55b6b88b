"""Histograms of fixed size that merge exactly."""

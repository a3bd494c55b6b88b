"""Detectors of change in one series; they know nothing of RL."""

"""Reward functions with known quirks, and sound ones, to judge the reward probes by.

`hackable` and `sound` were written before the probes and apart from them; `packages` takes functions from PyPI.
Each function of a reward has `QUIRKS`: what a probe must report. A sound function has none.
"""

"""Runs that compare how tasks are chosen: uniform, dynamic sampling, and the curriculum, at equal rollouts."""

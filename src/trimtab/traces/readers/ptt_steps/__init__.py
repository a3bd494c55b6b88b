"""Read step logs of post-training-toolkit: one event a line."""

"""Checkpoints on disk: their files, and the hashes of their weights. Nothing is unpickled."""

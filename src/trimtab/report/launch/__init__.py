"""Offline pages of checks before a launch: parity, environments, and the go or no-go of all."""

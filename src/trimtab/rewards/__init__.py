"""Rewards: probes that try to earn one without solving the task, and audits of why one rises."""

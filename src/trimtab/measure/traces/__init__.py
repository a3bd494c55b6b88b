"""Readings of agent logs: shares with clustered intervals, contrasts of failed and solved."""

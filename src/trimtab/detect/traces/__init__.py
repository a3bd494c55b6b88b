"""Checks of agent logs: rules on shares with intervals, bursts of failures, changes over the log."""

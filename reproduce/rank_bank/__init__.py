"""Faults of ranks: the job, the signals, and what is read from it afterwards."""

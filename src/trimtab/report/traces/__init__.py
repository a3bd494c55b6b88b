"""Diagnosis, comparison, live follow and HTML page of agent logs."""

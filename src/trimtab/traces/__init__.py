"""Read agent logs of thirteen formats into episodes, tables and training data."""

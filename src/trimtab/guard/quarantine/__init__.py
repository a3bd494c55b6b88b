"""Tool quarantine: which tools fail by their environment, and whether they are back."""

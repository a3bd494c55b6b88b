"""Decide whether a tool result is an error, of what kind, and whose fault."""

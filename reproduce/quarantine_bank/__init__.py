"""Tool quarantine on the tool outage of the collapse bank: what each arm saves."""

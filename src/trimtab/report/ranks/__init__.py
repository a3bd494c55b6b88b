"""Pages on the machine of a run: ranks, phases, memory."""

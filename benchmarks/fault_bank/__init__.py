"""Faults applied to recorded token batches: a pool of healthy batches, the faults, healthy kinds, and what trimtab says of each stream."""

"""Weights of a policy over time and over ranks: their average, and exchanges where FSDP2 shards them."""

"""Short training runs with behaviour snapshots and a held-out score of every checkpoint: what the advice is judged on."""

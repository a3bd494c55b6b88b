"""Episodes as columns: one row an episode, one a call, with interned names."""

"""Turn token batches into mergeable state, and state into readings."""

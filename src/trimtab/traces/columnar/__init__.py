"""Read large step logs in shards of lines."""

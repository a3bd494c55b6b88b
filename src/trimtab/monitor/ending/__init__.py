"""What a process does when its run ends badly: it writes the post-mortem, and dies as it would have."""

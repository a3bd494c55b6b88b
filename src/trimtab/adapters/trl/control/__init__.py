"""What a guard turns in a TRL trainer, and what it saves and restores of it."""

"""Read rules that users write in YAML, and check that each can fire."""

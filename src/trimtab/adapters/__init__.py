"""Connect trainers: translate a framework's names to `token_batch` arguments, and nothing else."""

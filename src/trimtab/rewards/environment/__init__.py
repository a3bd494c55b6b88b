"""State hacks: exploits of files, processes and history, run against a verifier in bubblewrap."""

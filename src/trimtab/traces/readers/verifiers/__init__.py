"""Read results and traces of verifiers."""

"""The built-in rules: a detector on one reading of one slice, with severity, advice and budget weight."""

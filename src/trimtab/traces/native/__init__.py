"""trimtab's own episode format: writer, reader, and the coercion of values."""

"""One reader a log format, from records to episodes."""

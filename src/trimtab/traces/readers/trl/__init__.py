"""Read TRL's completion logs and conversational data sets."""

"""What a guard can do about an incident: one policy a file, incident in, requests out."""

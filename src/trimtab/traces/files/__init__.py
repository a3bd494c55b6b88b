"""Find files of logs, decompress them, and read their lines and documents."""

"""Logs of coding agents: Claude Code, Codex, ATIF, OpenHands."""

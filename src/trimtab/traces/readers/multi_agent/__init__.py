"""Chats of several agents: AG2, AutoGen, Magentic-One."""

"""Shoal on Pond, a chat platform that does not exist."""

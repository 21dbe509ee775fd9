"""Commits: the log, the choice of one to recover from, retention."""

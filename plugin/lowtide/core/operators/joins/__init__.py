"""Joins of streams, and of streams and tables."""

"""Held records: what waits until nothing before it can come."""

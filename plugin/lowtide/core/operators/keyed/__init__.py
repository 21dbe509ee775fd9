"""Keyed steps: a function, a key's state, a record."""

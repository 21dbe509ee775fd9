"""Keys: their canonical bytes, and the hash that gives each its unit."""

__all__ = ["MAX_UNITS"]

MAX_UNITS = 1 << 15
"""The most hash units that a job may have."""

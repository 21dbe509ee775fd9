"""Formats: how the bytes of a message become a record and back; sources and sinks."""

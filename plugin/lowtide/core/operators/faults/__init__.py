"""Faults: records that a step cannot handle, and limits of size."""

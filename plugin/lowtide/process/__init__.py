"""Processes of one machine: their identity, their start, their messages to each other."""

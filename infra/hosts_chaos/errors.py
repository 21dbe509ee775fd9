"""Failures of a run, beside those that the job itself reports."""


class Undone(Exception):
    """A fault could not be done, or did not meet what it has to meet."""

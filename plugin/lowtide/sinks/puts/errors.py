"""Errors of stores that take puts."""

from __future__ import annotations

from lowtide.errors import RecordRefused


class PutRefused(RecordRefused):
    """Change what the store demands, such as its mapping: it will not take a record that is staged already."""

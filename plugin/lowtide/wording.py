"""Words of messages that several rooms say alike."""

__all__ = ["count_of"]


def count_of(count: int, noun: str) -> str:
    """Return a number with its noun: `1 part`, `1,234 parts`."""
    return f"{count:,} {noun}" + "s" * (count != 1)

"""The demonstration: real text through `inverted_index.py`, with a kill in the middle, and every byte compared."""

"""Windows: what is open, when it closes, and what is made of its records."""

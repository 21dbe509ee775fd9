"""Types: the records between steps, inferred, and everything that does not fit."""

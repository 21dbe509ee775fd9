"""Words: the methods that a user writes a flow with."""

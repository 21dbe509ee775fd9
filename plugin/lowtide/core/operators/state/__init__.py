"""State: what a step keeps of each key, how it is repaired, pruned and saved."""

"""The workers of a life: which there are, which have died, which are silent."""

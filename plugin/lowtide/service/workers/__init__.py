"""The workers of a life: those that are up, dead, or silent."""

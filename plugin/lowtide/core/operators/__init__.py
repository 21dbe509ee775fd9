"""Operators: the steps of a plan as they run in one worker."""

"""Fronts: how a source partition's messages get their labels, and how many of them may be under way."""

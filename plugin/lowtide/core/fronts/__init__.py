"""Fronts: labels for the records of one source partition, floors for its quiet times (R1 to R3)."""

"""The fronts of a life: idle partitions, tails, the clock of the broker."""

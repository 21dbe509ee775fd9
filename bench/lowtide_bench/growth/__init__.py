"""`lowtide bench growth`: counts of what grows with a job's fronts, parallelism, keys, state and open ticks."""

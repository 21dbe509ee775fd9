"""`make soak`: whether a job's processes grow."""

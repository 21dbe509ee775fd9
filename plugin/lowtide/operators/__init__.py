"""What a worker does with batches of records: pure, no I/O."""

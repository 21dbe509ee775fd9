"""Lowtide's peers, measured like Lowtide itself: one Kafka, one generator, one reader. Run by `make peers`."""

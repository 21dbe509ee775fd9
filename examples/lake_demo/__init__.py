"""Three stores besides Kafka, written exactly once over a kill: see `__main__`."""

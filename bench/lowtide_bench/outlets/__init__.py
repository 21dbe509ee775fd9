"""Sinks of a job: the cost of each beside Kafka, and the time until its readers see records."""

"""Kafka: topics, transactions, and what a job keeps there of its deliveries."""

"""Kafka as a store: transactions that write output and `last` together (R13, W10)."""

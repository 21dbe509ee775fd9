"""Sinks whose store has no transactions: records are staged in a topic of the job's own, and carried on from there."""

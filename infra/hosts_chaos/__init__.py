"""Faults that only hosts have, done to a cluster that runs a job under load; every byte of its output is judged."""

"""Chaos: a job under load on real services, a seeded schedule of faults, and every byte of its output judged."""

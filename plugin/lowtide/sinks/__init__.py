"""Stores that a job writes: how a bundle becomes durable in each, once, whatever dies."""

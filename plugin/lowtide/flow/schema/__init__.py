"""Schemas: what a record is, and how its fields become columns and values."""

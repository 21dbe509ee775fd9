"""Flows: what a user writes, checked and compiled into a plan. No services."""

"""The one limit of tests that wait for an event; for those of all distributions."""

HANGS_S = 400.0
"""Seconds after which something hangs: many times what a machine needs that has other things to do as well."""

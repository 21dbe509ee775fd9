"""Timers and clocks: steps that log time itself moves."""

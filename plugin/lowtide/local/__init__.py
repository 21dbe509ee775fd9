"""Runs in this process: `run_locally`, and the oracle that checks deliveries."""

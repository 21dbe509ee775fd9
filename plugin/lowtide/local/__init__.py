"""Runs in this process: `run_locally`, and the oracle that deliveries are compared with."""

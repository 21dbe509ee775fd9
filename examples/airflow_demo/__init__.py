"""Demonstration with Airflow: it starts the demo's job, takes snapshots on schedule, and recovers it when it dies."""

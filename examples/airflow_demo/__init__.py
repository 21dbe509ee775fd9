"""The demonstration with Airflow: it starts the demo's job, snapshots it on schedule, and recovers it when it dies."""

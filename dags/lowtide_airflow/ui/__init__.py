"""Lowtide's page in Airflow: jobs, min time and its lag, who holds it, snapshots and lives on one time axis."""

"""Lowtide's page in Airflow: jobs, min time with its lag and holder, snapshots and lives on one time axis."""

"""The page of a job, for any server: its files, and the values that it shows.

The job's control API and Airflow's API server serve the same files, and answer the same two requests, of their own
data: `api/jobs` with a `JobsAnswer`, `api/job` with a `JobAnswer`.
"""

"""The status of a job: one typed view, its history, metrics and control API."""

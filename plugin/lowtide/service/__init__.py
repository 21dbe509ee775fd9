"""The job's service: a process beside the Spark driver that knows every worker and decides when the life is over."""

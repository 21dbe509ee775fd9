"""The answers of calls as a topic of the job's own: written like a sink's records, read by the lives after."""

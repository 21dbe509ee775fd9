"""The Spark driver: session, query, and the start of a life."""

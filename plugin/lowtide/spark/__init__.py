"""Everything that touches Spark on the driver: its jars, session and query. `import lowtide` loads none of it."""

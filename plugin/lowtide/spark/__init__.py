"""Everything that touches Spark on the driver: its jars, session and query. Nothing here is imported by `import lowtide`."""

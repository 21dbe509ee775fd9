"""The job's place in a graph of several jobs: what it says to the graph's tracker, and hears from it."""

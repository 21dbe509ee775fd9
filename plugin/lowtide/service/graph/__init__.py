"""The job's place in a graph of several jobs: its line to the graph's tracker."""

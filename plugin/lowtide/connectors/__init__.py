"""What the world outside is: sources and sinks."""

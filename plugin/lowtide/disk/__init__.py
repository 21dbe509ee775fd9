"""State on disk: what a life keeps there of groups at rest, and how a snapshot reads it."""

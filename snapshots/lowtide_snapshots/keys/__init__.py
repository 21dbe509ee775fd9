"""Keys: their canonical bytes, and the hash that gives each its unit."""

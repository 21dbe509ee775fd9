"""The format of a snapshot: manifest, parts, names."""

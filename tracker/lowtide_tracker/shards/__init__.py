"""The tracker in shards: each holds a part of the table, and the merge makes one min time of what they report."""

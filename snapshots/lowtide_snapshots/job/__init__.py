"""A job's place in ZooKeeper: record, lease, incarnations, lives."""

"""ZooKeeper: the connection, nodes and their values."""

"""The snapshots of a life: taken, sealed, committed, retired."""

"""The formats of snapshots."""

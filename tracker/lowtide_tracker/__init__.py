"""The tracking protocol: what of a stream has been processed, for good."""

"""Sinks whose records are put into a store by key: a newer one replaces an older one, never the other way round."""

"""The one version of all four distributions."""

__version__ = "0.1.0"

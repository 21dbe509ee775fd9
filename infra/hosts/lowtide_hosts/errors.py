"""Errors of hosts."""


class HostsError(Exception):
    """Look at what it says: the kernel, or a program on a host, did not do what it was asked for."""

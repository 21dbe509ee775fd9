"""Errors of hosts."""


class HostsError(Exception):
    """The kernel, or a program on a host, did not do what was requested; read the message."""

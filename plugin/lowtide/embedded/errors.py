"""Errors of the embedded servers, in addition to those of `lowtide.errors`."""

from lowtide.errors import AlreadyRunning, ServiceUnavailable


class ServerDied(ServiceUnavailable):
    """Read the server's last lines: it ended before it answered."""


class ServerSilent(ServiceUnavailable):
    """Read the server's last lines: it runs but did not answer in time."""


class DataDamaged(ServiceUnavailable):
    """Give the server another data folder, or an empty one."""


class FolderInUse(AlreadyRunning):
    """Wait for the process that uses the folder, end it, or take another folder."""


class ServerDiffers(AlreadyRunning):
    """Stop the running server first, or ask for it as it runs."""

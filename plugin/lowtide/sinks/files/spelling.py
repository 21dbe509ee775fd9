"""Folders, in the one spelling by which two can be compared."""

from __future__ import annotations

import posixpath

S3 = "s3://"


def folder_of(url: str, connection: str) -> tuple[str, str]:
    """Return the connection, "" for a folder of this machine, and the path; in S3 it begins with the bucket.

    Example:
        >>> folder_of("s3://lake/orders/", "default")
        ('default', '/lake/orders')
        >>> folder_of("file:///lake//orders", "default") == folder_of("/lake/orders", "archive")
        True
    """
    server = connection if url.startswith(S3) else ""
    return server, posixpath.normpath("/" + url.removeprefix(S3).removeprefix("file://").lstrip("/"))


def within(folder: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether a folder is another one, or in it.

    Example:
        >>> within(("", "/lake/orders"), ("", "/lake")), within(("", "/lakes"), ("", "/lake"))
        (True, False)
    """
    return folder[0] == other[0] and f"{folder[1]}/".startswith(f"{other[1].rstrip('/')}/")

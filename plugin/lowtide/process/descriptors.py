"""The limit on a process's open descriptors: a tracker has one for each of its workers."""

from __future__ import annotations

import resource

MOST = 1 << 17
"""Twice as many as there are numbers of workers."""


def allow_descriptors(count: int = MOST) -> int:
    """Raise the limit of this process, and of each that it starts, as far as the system lets it; return what it is.

    The usual limit, 1,024, is for programs that call `select`, which Lowtide's do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted

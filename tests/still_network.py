"""The machine's network devices, one at a time: Chromium gives up what it loads when a device comes or goes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_network() -> Iterator[None]:
    """Keep the network for this process: to change its devices, or to have them left as they are."""
    path = Path(tempfile.gettempdir()) / f"lowtide-tests-network-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

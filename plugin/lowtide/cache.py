"""The folder of everything that is fetched or built outside the clone: environments, third-party jars."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return `$LOWTIDE_CACHE`, or else `lowtide` in `$XDG_CACHE_HOME` or `~/.cache`; it need not be there yet.

    `tools/environment.py` has the same rule, as it runs before anything is installed.
    """
    named = os.environ.get("LOWTIDE_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "lowtide"

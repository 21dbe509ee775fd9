"""Turns the conf's `[files.NAME]` into what a store needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lowtide.conf import Conf
from lowtide.conf.named import named
from lowtide.conf.tables import FilesConf


def settings_of(conf: Conf, name: str) -> dict[str, Any]:
    """Return a connection's keys; "default" needs no table (errors: ConfError)."""
    if name == "default" and name not in conf.files:
        return asdict(FilesConf())
    return asdict(named(conf.files, "files", name, does="writes files", keys="endpoint and region"))

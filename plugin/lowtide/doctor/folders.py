"""The folders that Lowtide writes to."""

import os
import shutil
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.doctor.check import Answer, Surroundings

MIB = 1 << 20
LEAST_MIB = 256
ENOUGH_MIB = 2048


def folders(surroundings: Surroundings) -> Answer:
    """They can be written to, and their disks have room."""
    conf = surroundings.conf
    wanted = {
        "[embedded].folder": Path(conf.embedded.folder),
        "[job].folder": Path(conf.job.folder),
        "[spark].checkpoint_folder": Path(conf.spark.checkpoint_folder),
        "LOWTIDE_CACHE": cache_folder(),
    }
    least = None
    for setting, folder in wanted.items():
        there = _existing(folder.absolute())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            return Answer("fail", f"{there} cannot be written to", f"mend its rights, or set {setting} to another")
        free = shutil.disk_usage(there).free // MIB
        if least is None or free < least[0]:
            least = (free, there, setting)
    assert least is not None
    free, there, setting = least
    found = f"all can be written to; {free} MiB free at {there}"
    if free < ENOUGH_MIB:
        return Answer("fail" if free < LEAST_MIB else "warn", found, f"make room there, or set {setting} to another")
    return Answer("ok", found)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())

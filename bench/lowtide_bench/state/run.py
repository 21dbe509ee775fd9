"""A host on disk in little memory, then its recovery, and a host in memory beside them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide_bench.child import Child
from lowtide_bench.ground import described
from lowtide_bench.session import Say
from lowtide_bench.state.limit import Limit, limited

LIMIT_S = 3_600.0
LOOK_S = 0.2
PROCESS = "lowtide_bench.state.process"
MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The measurement that is asked for.

    Attributes:
        keys: The number of keys.
        state_bytes: Bytes of each beside its count.
        memory_bytes: The memory of all processes of a host with their page cache; 0 for no limit.
        memory_mb: `state.memory_mb`.
        disk_max_gb: `state.disk_max_gb`.
        copies_max_gb: `state.copies_max_gb`; if it is not 0, a second recovery begins with the copies.
        memory_keys: The number of keys of the host in memory; 0 to leave it out.
        seconds: How long each load lasts.
        warmup_s: How long before it is measured.
        batch: Records of a message, where they come as fast as they can.
        rate: Records a second, where they come at a pace.
        folder: Where state and snapshots are; None for a temporary folder.
    """

    keys: int
    state_bytes: int
    memory_bytes: int
    memory_mb: int
    disk_max_gb: float
    memory_keys: int
    seconds: float
    warmup_s: float
    batch: int
    rate: int
    folder: str | None = None
    copies_max_gb: float = 0.0


def run(asked: Asked, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench state --json` prints.

    Raises:
        LimitRefused: memory cannot be limited here.
        ChildFailed: a host has ended, perhaps for lack of memory.
    """
    with described() as surroundings, tempfile.TemporaryDirectory("-lowtide-bench", dir=asked.folder) as name:
        common = {
            "folder": name,
            "state_bytes": asked.state_bytes,
            "memory_mb": asked.memory_mb,
            "disk_max_gb": asked.disk_max_gb,
            "copies_max_gb": asked.copies_max_gb,
            "seconds": asked.seconds,
            "warmup_s": asked.warmup_s,
            "batch": asked.batch,
            "rate": asked.rate,
        }
        with ExitStack() as stack:
            limit = stack.enter_context(limited(asked.memory_bytes)) if asked.memory_bytes else None
            on_disk = common | {"cgroup": str(limit.folder) if limit else "", "on_disk": True, "keys": asked.keys}
            disk = _done(on_disk | {"does": "host", "saves": True}, limit, say)
            snapshot = disk["snapshot"]
            begins = on_disk | {"does": "recovery", "snapshot": snapshot}
            local = _done(begins, limit, say) if asked.copies_max_gb else None
            recovery = _done(begins | {"copies_max_gb": 0.0}, limit, say)
            limited_by = limit.kind if limit else "nothing"
        memory = None
        if asked.memory_keys:
            task = common | {"cgroup": "", "on_disk": False, "keys": min(asked.keys, asked.memory_keys)}
            memory = _done(task | {"does": "host", "saves": False}, None, say)
    parts = snapshot.pop("parts")
    snapshot["parts"] = len(parts)
    del snapshot["drawn"]
    peak = disk["memory"]
    return {
        "zipf_records_per_s": round(disk["zipf"]["records_per_s"]),
        "uniform_records_per_s": round(disk["uniform"]["records_per_s"]),
        "p99_ms": round(disk["paced"]["p99_ms"], 3),
        "rss_mb": peak["rss_mb"],
        "snapshot_s": round(snapshot["took_s"], 1),
        "recovery_s": round(recovery["took_s"], 1),
        "local_recovery_s": None if local is None else round(local["took_s"], 1),
        "lost": recovery["lost"] + (0 if local is None else local["lost"]),
        "memory_p99_ms": None if memory is None else round(memory["paced"]["p99_ms"], 3),
        "anonymous_mb": peak["anonymous_mb"],
        "mapped_mb": peak["mapped_mb"],
        "limited_by": limited_by,
        "asked": {name: getattr(asked, name) for name in asked.__dataclass_fields__ if name != "folder"},
        "disk": disk,
        "recovery": recovery,
        "local_recovery": local,
        "memory": memory,
        **surroundings,
    }


def _done(task: Mapping[str, Any], limit: Limit | None, say: Say) -> dict[str, Any]:
    """Let a process do a task; return its result, with the most memory that it had."""
    where = "disk" if task["on_disk"] else "memory"
    peak = {"rss_mb": 0.0, "anonymous_mb": 0.0, "mapped_mb": 0.0}
    deadline = time.monotonic() + LIMIT_S
    with closing(_Closing(Child(PROCESS, task))) as closed:
        child = closed.child
        while time.monotonic() < deadline:
            heard = child.hear(LOOK_S)
            for name, value in _memory(child.pid).items():
                peak[name] = max(peak[name], value)
            if heard is None:
                continue
            if "result" in heard:
                result: dict[str, Any] = heard["result"]
                return result | {"memory": peak | {"cgroup_mb": limit.peak_mb if limit else None}}
            say(f"{where}, {heard['progress']}")
        child.expect("result", 0.0, way_out="give fewer --keys")
        raise AssertionError


@dataclass
class _Closing:
    child: Child

    def close(self) -> None:
        self.child.end()


def _memory(pid: int) -> dict[str, float]:
    """Return a process's memory in MB: all, what is its own, and what is mapped of files."""
    names = {"VmRSS:": "rss_mb", "RssAnon:": "anonymous_mb", "RssFile:": "mapped_mb"}
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = [line.split() for line in lines]
    return {names[each[0]]: round(int(each[1]) * 1024 / MB, 1) for each in fields if each and each[0] in names}

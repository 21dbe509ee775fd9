"""Runs sweeps, and gives each count its class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide_bench.core import Say, versions
from lowtide_bench.growth.classes import class_of
from lowtide_bench.growth.sweeps import SWEEPS
from lowtide_bench.machine import load, machine


def run(names: Sequence[str], say: Say) -> dict[str, Any]:
    """Count, and return the object that `lowtide bench growth --json` prints."""
    where = machine()
    sweeps = {name: swept(name, SWEEPS[name].values, say) for name in names}
    return {"sweeps": sweeps, "versions": versions(), "machine": {**where, "load_after": load()}}


def swept(name: str, values: Sequence[int], say: Say = lambda _: None) -> dict[str, Any]:
    """Count one sweep over these values; each count has its class and the documented one, if there is one."""
    sweep = SWEEPS[name]
    found: dict[int, Mapping[str, float]] = {}
    for value in values:
        say(f"{name}: {value:,}")
        found[value] = sweep.counted(value)
    return {
        "title": sweep.title,
        "values": list(values),
        "counts": {
            count: {
                "counted": [found[value][count] for value in values],
                "class": class_of([(value, found[value][count]) for value in values]),
                "documented": sweep.documented.get(count),
            }
            for count in found[values[0]]
        },
    }

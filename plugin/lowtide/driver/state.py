"""The place of a job's state, in memory or on disk: what `[state]` in conf means for a plan."""

from __future__ import annotations

from lowtide.assignment.deployment import DiskSetting
from lowtide.conf import Conf
from lowtide.core.operators.state.group import GROUP_BYTES
from lowtide.core.operators.state.packing import packs
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.operators.state.shelf import SHELF_BYTES
from lowtide.disk.store import lmdb
from lowtide.errors import ConfError
from lowtide.flow.plan.plan import Plan, state_names

MIB = 1 << 20
GB = 10**9


def disk_of(plan: Plan, conf: Conf) -> DiskSetting | None:
    """Return where the state lies that is on disk; None if all is in memory.

    Raises:
        ConfError: a step is named that is not there or whose state cannot be on disk, or the library is missing.
    """
    state = conf.state
    disk = steps_on_disk(plan, conf)
    if not disk:
        return None
    lmdb()
    return DiskSetting(
        folder=state.folder,
        memory_bytes=state.memory_mb * MIB,
        max_bytes=round(state.disk_max_gb * GB),
        in_memory=frozenset(saved_steps(plan)) - frozenset(disk),
        copies_bytes=round(state.copies_max_gb * GB),
    )


def steps_on_disk(plan: Plan, conf: Conf) -> list[str]:
    """Return the steps whose state is on disk, in the flow's order; errors: ConfError, as in `disk_of`."""
    state, known = conf.state, list(saved_steps(plan))
    can = [name for vertex in plan.vertices if packs(plan, vertex) for name in state_names(vertex)]
    for name, backend in state.steps.items():
        if name not in known:
            raise ConfError(
                f'the flow has no step "{name}" with state',
                where="[state.steps]",
                way_out=f"name one of: {', '.join(known) or 'there is none'}",
            )
        if backend == "disk" and name not in can:
            raise ConfError(
                f'the state of "{name}" can only be in memory',
                where="[state.steps]",
                way_out=f"these can be on disk: {', '.join(can) or 'none of this flow'}; not sessions "
                "that keep their records, windows that do and update their results, and dataclasses with a constructor "
                "of their own",
            )
    return [name for name in can if state.steps.get(name, state.backend) == "disk"]


def explain_state(plan: Plan, conf: Conf) -> str:
    """Say where the state of each step lies; empty for a flow without."""
    known, disk = list(saved_steps(plan)), steps_on_disk(plan, conf)
    if not known:
        return ""
    if not disk:
        return "state: in memory"
    memory = [name for name in known if name not in disk]
    room = f"up to {conf.state.disk_max_gb:g} GB a process, with some {_keys(conf.state.memory_mb)} keys in memory"
    lines = [f"state: on disk under {conf.state.folder}, {room}", f"  on disk:   {', '.join(disk)}"]
    if memory:
        lines.append(f"  in memory: {', '.join(memory)}")
    return "\n".join(lines)


def _keys(memory_mb: int) -> str:
    """About how many keys with a state of 100 bytes fit."""
    return f"{memory_mb * MIB // (GROUP_BYTES + SHELF_BYTES + 200):,}"

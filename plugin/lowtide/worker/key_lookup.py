"""Looks up the state of one key as of min time, for the control API."""

from __future__ import annotations

import msgspec

from lowtide.assignment.messages import Look, Looked
from lowtide.core.operators.grouping import NOTHING
from lowtide.core.operators.saved_step import KeyUnreadable, saved_steps
from lowtide.core.worker import WorkerCore

__all__ = ["KeyLookup"]


class KeyLookup:
    """Looks into one worker's state.

    Args:
        core: The worker's.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._steps = saved_steps(core.plan, core.level)

    def look(self, asked: Look) -> Looked:
        """Answer a question."""
        step = self._steps.get(asked.step)
        if step is None or step.key is None:
            return Looked(id=asked.id)
        try:
            key = step.key_of(asked.key)
        except KeyUnreadable as error:
            return Looked(id=asked.id, cause=str(error))
        tick = self._core.tracker.global_min
        state = self._core.program.look(step.vertex, key, tick)
        if state is NOTHING:
            return Looked(id=asked.id, tick=tick)
        return Looked(id=asked.id, tick=tick, state=msgspec.json.encode(step.shown(key, state)).decode())

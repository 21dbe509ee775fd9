"""Looks up the state of one key as of min time, for the control API."""

from __future__ import annotations

import logging

import msgspec

from lowtide.assignment.messages import Look, Looked
from lowtide.core.operators.grouping import NOTHING
from lowtide.core.operators.saved_step import KeyUnreadable, saved_steps
from lowtide.core.worker import WorkerCore

__all__ = ["KeyLookup"]

LOG = logging.getLogger(__name__)


class KeyLookup:
    """Looks into one worker's state.

    Args:
        core: The worker's.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._steps = saved_steps(core.plan, core.level)

    def look(self, asked: Look) -> Looked:
        """Answer a question; whatever goes wrong is the answer, as no question may end a life."""
        try:
            return self._look(asked)
        except Exception as error:
            LOG.exception('a key of "%s" could not be looked up', asked.step)
            return Looked(id=asked.id, cause=f'a key of "{asked.step}" could not be looked up: {error!r}')

    def _look(self, asked: Look) -> Looked:
        step = self._steps.get(asked.step)
        if step is None or step.key is None:
            return Looked(id=asked.id)
        try:
            key = step.key_of(asked.key)
        except KeyUnreadable as error:
            return Looked(id=asked.id, cause=str(error))
        tick = self._core.settled_time
        state = self._core.program.look(step.vertex, key, tick)
        if state is NOTHING:
            return Looked(id=asked.id, tick=tick)
        return Looked(id=asked.id, tick=tick, state=msgspec.json.encode(step.shown(key, state)).decode())

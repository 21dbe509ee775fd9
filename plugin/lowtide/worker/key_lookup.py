"""Looks up the state of one key as of min time, for the control API."""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec

from lowtide.assignment.messages import LabelsEnded, Look, Looked, LookForLabels
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.state.saved_step import KeyUnreadable, saved_steps
from lowtide.core.worker import WorkerCore
from lowtide.flow.formats.json_writable import sayable
from lowtide.flow.steps.when_done import ENDED

__all__ = ["KeyLookup"]

LOG = logging.getLogger(__name__)


class KeyLookup:
    """Looks into one worker's state.

    Args:
        core: The worker's core.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._steps = saved_steps(core.plan, core.level)

    def look(self, asked: Look) -> Looked:
        """Answer a question; an error becomes the answer, as no question may end a life."""
        try:
            return self._look(asked)
        except Exception as error:
            LOG.exception('could not look up a key of "%s"', asked.step)
            return Looked(id=asked.id, cause=f'could not look up a key of "{asked.step}": {error!r}')

    def look_for_labels(self, asked: LookForLabels) -> LabelsEnded:
        """Return which labels have ended, for the hash units that are here; one not of the label's type has not."""
        try:
            return LabelsEnded(asked.id, self._ended(asked))
        except Exception:
            LOG.exception('could not look up labels of "%s"', asked.step)
            return LabelsEnded(asked.id, {})

    def _ended(self, asked: LookForLabels) -> dict[str, int]:
        step = self._steps.get(f"{asked.step}/{ENDED}")
        if step is None or step.key is None:
            return {}
        (column,) = [field.name for field in step.key]
        labels: dict[Key, str] = {}
        for label in asked.labels:
            with suppress(KeyUnreadable):
                labels[step.key_of({column: label})] = label
        ended = self._core.program.ended(step.vertex, list(labels), self._core.settled_time)
        return {labels[key]: tick for key, tick in ended.items()}

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
        rows = sayable(step.shown(key, state))
        return Looked(id=asked.id, tick=tick, state=msgspec.json.encode(rows).decode())

"""Looks up the state of keys as of min time, for the control API."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from lowtide.assignment.messages import LabelsEnded, Look, LookAround, Looked, LookForLabels
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.state.saved_step import KeyUnreadable, SavedStep, saved_steps
from lowtide.core.worker import WorkerCore
from lowtide.flow.formats.json_writable import sayable
from lowtide.flow.steps.labels import label_columns
from lowtide.flow.steps.when_done import ENDED

LOG = logging.getLogger(__name__)


class KeyLookup:
    """Looks into one worker's state.

    Args:
        core: The worker's core.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._steps = saved_steps(core.plan, core.level)

    def answer(self, asked: Look | LookAround | LookForLabels) -> Looked | LabelsEnded:
        """Answer any of the questions."""
        return self.look_for_labels(asked) if isinstance(asked, LookForLabels) else self.look(asked)

    def look(self, asked: Look | LookAround) -> Looked:
        """Answer a question; an error becomes the answer, as no question may end a life."""
        try:
            step = self._steps.get(asked.step)
            if step is None:
                return Looked(id=asked.id)
            return self._look_at(step, asked) if isinstance(asked, Look) else self._look_around(step, asked)
        except KeyUnreadable as error:
            return Looked(id=asked.id, cause=str(error))
        except Exception as error:
            LOG.exception('could not look up keys of "%s"', asked.step)
            return Looked(id=asked.id, cause=f'could not look up keys of "{asked.step}": {error!r}')

    def _look_at(self, step: SavedStep, asked: Look) -> Looked:
        tick, program = self._core.settled_time, self._core.program
        found: list[tuple[int, Key, Any]] = []
        if step.key is None:
            if asked.keys != [{}]:
                raise KeyUnreadable(f'"{step.vertex}" is a broadcast, which has one state and no key: ask without one')
            found.append((0, None, program.look_beside(step.vertex, tick)))
        else:
            keys = step.keys_of(asked.keys)
            found += [(place, key, program.look(step.vertex, key, tick)) for place, key in enumerate(keys)]
        found = [each for each in found if each[2] is not NOTHING]
        rows = _rows(step, [(key, state) for _, key, state in found])
        return Looked(id=asked.id, tick=tick, rows=dict(zip([place for place, _, _ in found], rows, strict=True)))

    def _look_around(self, step: SavedStep, asked: LookAround) -> Looked:
        if step.key is None:
            raise KeyUnreadable(f'"{step.vertex}" is a broadcast, which has one state and no keys')
        tick = self._core.settled_time
        walk = self._core.program.look_around(step.vertex, asked.unit, tick)
        found = list(islice(walk, asked.limit + 1))
        rows = dict(enumerate(_rows(step, found[: asked.limit])))
        return Looked(id=asked.id, tick=tick, rows=rows, more=len(found) > asked.limit)

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
        names = [field.name for field in step.key]
        labels: dict[Key, list[str]] = {}  # One label may be written in several ways.
        for label in asked.labels:
            columns = label_columns(names, label)
            with suppress(KeyUnreadable):
                labels.setdefault(step.keys_of([columns or {}])[0], []).append(label)
        ended = self._core.program.ended(step.vertex, list(labels), self._core.settled_time)
        return {label: tick for key, tick in ended.items() for label in labels[key]}


def _rows(step: SavedStep, entries: list[tuple[Key, Any]]) -> list[str]:
    """For each key its rows as JSON."""
    return [msgspec.json.encode(sayable(rows)).decode() for rows in step.shown(entries)] if entries else []

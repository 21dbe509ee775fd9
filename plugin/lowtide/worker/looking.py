"""Looks up the state of one key as of min time, for the control API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lowtide.core.operators.grouping import NOTHING
from lowtide.core.operators.saving import KeyUnreadable, saved_steps
from lowtide.core.worker import WorkerCore

__all__ = ["Looking"]


class Looking:
    """Looks into one worker's state.

    Args:
        core: The worker's.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._steps = saved_steps(core.plan, core.level)

    def look(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question: `id`, `step`, and `key` as text by column.

        Returns:
            The `id`, and what there is: `refused` with the reason; or `tick`, of the min time that it is as of, with
            `state` as JSON if the key has any here.
        """
        answer: dict[str, Any] = {"id": asked["id"]}
        step = self._steps.get(asked["step"])
        if step is None or step.key is None:
            return answer
        try:
            key = step.key_of(asked["key"])
        except KeyUnreadable as error:
            return answer | {"refused": str(error)}
        tick = self._core.tracker.global_min
        state = self._core.program.look(step.vertex, key, tick)
        answer["tick"] = tick
        if state is not NOTHING:
            answer["state"] = msgspec.json.encode(step.shown(key, state)).decode()
        return answer

"""A stage that does nothing, for tests of what is around it, and what brings it to the workers of a real life."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from lowtide.operators.limits import Limits
from lowtide.worker.birth import Birth
from lowtide.worker.protocol import Frames
from lowtide.worker.welcome import Welcome


class IdleStage:
    """All that the loop asks of a stage; a test overrides what it is about."""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        return []

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        return []

    def end(self, epoch: int, now_ns: int) -> Frames:
        return []

    def pulling(self) -> bool:
        return True

    def full(self) -> bool:
        return False

    def descriptors(self) -> tuple[int, ...]:
        return ()

    def hear(self) -> Frames:
        return []

    def told(self, message: dict[str, Any]) -> None:
        pass

    def asks(self, now_s: float) -> list[dict[str, Any]]:
        return []

    def tick(self, now_s: float) -> Frames:
        return []

    def due_s(self, now_s: float) -> float:
        return 1.0

    def gauges(self) -> dict[str, Any]:
        return {}

    def close(self, timeout_s: float) -> int:
        return 0


class StageDeployment:
    """Gives every worker what `make` makes."""

    max_queued_bytes = 1 << 20

    def __init__(self, make: Callable[[], IdleStage], max_group_rows: int = 8192) -> None:
        self.limits = Limits(1 << 20, 1 << 20, max_group_rows)
        self._make = make

    def stage(self, birth: Birth, welcome: Welcome) -> IdleStage:
        return self._make()


# Workers have this folder on no path of theirs.
cloudpickle.register_pickle_by_value(__import__(__name__))

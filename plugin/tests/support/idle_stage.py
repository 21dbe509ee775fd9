"""A stage that does nothing, for tests of what is around it, and what brings it to the workers of a real life."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import cloudpickle

from lowtide.assignment.birth import Birth
from lowtide.assignment.messages import WorkerNews, WorkerOrder
from lowtide.assignment.welcome import Welcome
from lowtide.core.operators.faults.limits import Limits
from lowtide.status.gauges import WorkerGauges
from lowtide.worker.protocol import Emitted, Frames, Reported


class IdleStage:
    """All that the loop asks of a stage, and of a host for it; a test overrides what it is about."""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        return []

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        return []

    def end(self, epoch: int, now_ns: int) -> Frames:
        return []

    def reached_ms(self) -> int | None:
        """It reads no source."""
        return None

    def pulling(self) -> bool:
        return True

    def full(self) -> bool:
        return False

    def descriptors(self) -> tuple[int, ...]:
        return ()

    def hear(self) -> Frames:
        return []

    def handed(self) -> Frames:
        return []

    def follow(self, order: WorkerOrder) -> None:
        pass

    def news(self, now_s: float) -> list[WorkerNews]:
        return []

    def tick(self, now_s: float) -> Frames:
        return []

    def due_s(self, now_s: float) -> float:
        return 1.0

    def gauges(self) -> WorkerGauges:
        return WorkerGauges()

    def close(self, timeout_s: float) -> int:
        return 0


class IdleHost:
    """A host that does for its stages what each wants to have done."""

    def __init__(self) -> None:
        self.stages: dict[str, IdleStage] = {}

    def watched(self) -> list[tuple[int, Callable[[], Emitted]]]:
        return [
            (descriptor, partial(self._hear, name))
            for name, stage in self.stages.items()
            for descriptor in stage.descriptors()
        ]

    def _hear(self, name: str) -> Emitted:
        return [(name, self.stages[name].hear())]

    @property
    def restless(self) -> bool:
        return False

    def rest(self) -> Emitted:
        return []

    def handed(self) -> Emitted:
        return [(name, stage.handed()) for name, stage in self.stages.items()]

    def tick(self, now_s: float) -> Emitted:
        return [(name, stage.tick(now_s)) for name, stage in self.stages.items()]

    def due_s(self, now_s: float) -> float:
        return min(stage.due_s(now_s) for stage in self.stages.values())

    def gauges(self, of_first: WorkerGauges) -> WorkerGauges:
        return of_first

    def news(self, now_s: float) -> list[Reported]:
        return [(name, news) for name, stage in self.stages.items() for news in stage.news(now_s)]

    def send(self) -> None:
        pass

    def close(self, timeout_s: float) -> int:
        return sum(stage.close(timeout_s) for stage in self.stages.values())


class StageDeployment:
    """Gives every worker what `make` makes."""

    max_queued_bytes = 1 << 20
    relay = False
    flush_ms = 2.0

    def __init__(self, make: Callable[[], IdleStage], max_group_rows: int = 8192, call_limit_s: float = 60.0) -> None:
        self.call_limit_s = call_limit_s
        self.limits = Limits(1 << 20, 1 << 20, max_group_rows)
        self._make = make

    def host(self, birth: Birth, welcome: Welcome) -> IdleHost:
        return IdleHost()

    def stage(self, birth: Birth, welcome: Welcome, host: IdleHost) -> IdleStage:
        stage = host.stages[birth.name] = self._make()
        return stage


# Workers have this folder on no path of theirs.
cloudpickle.register_pickle_by_value(__import__(__name__))

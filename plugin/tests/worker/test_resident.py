"""Which of a host's workers deal with their input first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from idle_stage import IdleStage

from lowtide.worker.attachment import Attachment
from lowtide.worker.resident import MAX_LEAD_MS, Resident, not_ahead


@dataclass
class Reading(IdleStage):
    """A stage whose source partition has been read up to some time; None: it has none."""

    at_ms: int | None

    def reached_ms(self) -> int | None:
        return self.at_ms


def chosen(**reached_ms: int | None) -> list[str]:
    task: Any = None
    workers = [
        Resident(name, 0, Reading(at_ms), Attachment(1, every_epoch=False), task) for name, at_ms in reached_ms.items()
    ]
    return [worker.name for worker in not_ahead(workers)]


def test_who_is_far_ahead_in_the_log_waits_for_the_others() -> None:
    assert chosen(early=1_000, late=1_000 + MAX_LEAD_MS + 1) == ["early"]
    assert chosen(early=1_000, near=1_000 + MAX_LEAD_MS) == ["early", "near"]
    assert chosen(a=-5_000, b=-5_000) == ["a", "b"]


def test_workers_of_later_levels_never_wait() -> None:
    """What they have is what is already on its way."""
    assert chosen(first=None, second=None) == ["first", "second"]
    assert chosen(counting=None, early=0, late=1_000) == ["counting", "early"]

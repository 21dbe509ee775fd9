"""Measures how far the sources still reach back: whether a life could begin from the last commit now (R17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from lowtide_snapshots.format.manifest import FrontAt, Manifest

__all__ = ["Reach", "earliest"]

LOOK_EVERY_S = 60.0
ANSWER_LIMIT_S = 10.0
ASKING: dict[str, Any] = {"group.id": "lowtide-reach", "enable.auto.commit": False, "log_level": 0}
"""A group is never joined; librdkafka just wants its name."""

Place = tuple[str, int]
"""Topic and partition."""


class Reach:
    """Asks Kafka once a minute for the first offset of each source partition; belongs to the service's event loop.

    Args:
        settings: librdkafka's.
        manifest: Of the last commit; None while there is none.
    """

    def __init__(self, settings: Mapping[str, Any], manifest: Callable[[], Manifest | None]) -> None:
        self._settings = settings
        self._manifest = manifest
        self._earliest: dict[Place, int] = {}
        self._look_at = 0.0
        self._look: asyncio.Task[None] | None = None
        self._short = ""

    def look(self, now_s: float) -> None:
        """Each second: ask, if it is time."""
        if now_s < self._look_at or self._manifest() is None:
            return
        self._look_at = now_s + LOOK_EVERY_S
        if self._look is None or self._look.done():
            self._look = asyncio.get_running_loop().create_task(self._ask())

    async def close(self) -> None:
        """Ask no more."""
        if self._look is not None:
            await asyncio.wait([self._look])

    def spare(self) -> dict[int, int]:
        """By front how many records the source still has before those that the last commit needs; negative: it lacks.

        As far as it is known.
        """
        known = ((front, self._earliest.get((front.source, front.partition))) for front in self._fronts())
        return {front.number: front.offset - first for front, first in known if first is not None}

    @property
    def trouble(self) -> str:
        """Which sources do not reach back to the last commit, and since when; empty if all do."""
        spare = self.spare()
        lacks = [f"{front.source}-{front.partition}" for front in self._fronts() if spare.get(front.number, 0) < 0]
        if not lacks:
            self._short = ""
            return ""
        self._short = self._short or f"since {datetime.now(UTC):%H:%M:%S} UTC"
        return (
            f"{self._short}: no life can begin from the last commit any more, as records it needs were deleted from "
            f"{', '.join(lacks)}; take a snapshot now"
        )

    def _fronts(self) -> tuple[FrontAt, ...]:
        manifest = self._manifest()
        return () if manifest is None else manifest.fronts

    async def _ask(self) -> None:
        places = [(front.source, front.partition) for front in self._fronts()]
        # Where Kafka does not answer, the last answers stay.
        self._earliest |= await asyncio.to_thread(earliest, self._settings, places)


def earliest(settings: Mapping[str, Any], places: list[Place], limit_s: float = ANSWER_LIMIT_S) -> dict[Place, int]:
    """The first offset of each partition, of those that Kafka tells."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    asking = Consumer({**settings, **ASKING, "error_cb": lambda _: None})
    try:
        question = [TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in dict.fromkeys(places)]
        answer = asking.offsets_for_times(question, timeout=limit_s)
    except KafkaException:
        return {}
    finally:
        asking.close()
    return {
        (found.topic, found.partition): found.offset for found in answer if found.error is None and found.offset >= 0
    }

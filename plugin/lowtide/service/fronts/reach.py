"""Measures how far back the sources reach: whether a life can begin from the last commit (R17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from lowtide_snapshots.format.manifest import FrontAt, Manifest

LOOK_EVERY_S = 60.0
ANSWER_LIMIT_S = 10.0
ASKING: dict[str, Any] = {"group.id": "lowtide-reach", "enable.auto.commit": False, "log_level": 0}
"""The name of a group that is never joined; librdkafka requires one."""

Source = tuple[str, int]
"""A topic and a partition."""


class Reach:
    """Asks Kafka once a minute for the first offset of each source partition; belongs to the service's event loop.

    Args:
        settings: librdkafka's.
        manifest: The last commit's manifest; None while there is none.
    """

    def __init__(self, settings: Mapping[str, Any], manifest: Callable[[], Manifest | None]) -> None:
        self._settings = settings
        self._manifest = manifest
        self._earliest: dict[Source, int] = {}
        self._look_at = 0.0
        self._look: asyncio.Task[None] | None = None
        self._short = ""

    def look(self, now_s: float) -> None:
        """Ask if it is time; call it each second."""
        if now_s < self._look_at or self._manifest() is None:
            return
        self._look_at = now_s + LOOK_EVERY_S
        if self._look is None or self._look.done():
            self._look = asyncio.get_running_loop().create_task(self._ask())

    async def close(self) -> None:
        """Stop asking."""
        if self._look is not None:
            await asyncio.wait([self._look])

    def spare(self) -> dict[int, int]:
        """Return by front the records that the source has before those the last commit needs; negative: it lacks some.

        Only fronts for which this is known.
        """
        known = ((front, self._earliest.get((front.source, front.partition))) for front in self._fronts())
        return {front.number: front.offset - first for front, first in known if first is not None}

    @property
    def trouble(self) -> str:
        """The sources that do not reach back to the last commit, and since when; empty if all do."""
        spare = self.spare()
        lacks = [f"{front.source}-{front.partition}" for front in self._fronts() if spare.get(front.number, 0) < 0]
        if not lacks:
            self._short = ""
            return ""
        self._short = self._short or f"since {datetime.now(UTC):%H:%M:%S} UTC"
        return (
            f"{self._short}: no life can begin from the last commit, as records it needs were deleted from "
            f"{', '.join(lacks)}; take a snapshot now"
        )

    def _fronts(self) -> tuple[FrontAt, ...]:
        manifest = self._manifest()
        return () if manifest is None else manifest.fronts

    async def _ask(self) -> None:
        sources = [(front.source, front.partition) for front in self._fronts()]
        # If Kafka does not answer, the last answers stay.
        self._earliest |= await asyncio.to_thread(earliest, self._settings, sources)


def earliest(settings: Mapping[str, Any], sources: list[Source], limit_s: float = ANSWER_LIMIT_S) -> dict[Source, int]:
    """Return the first offset of each partition for which Kafka answers."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    asking = Consumer({**settings, **ASKING, "error_cb": lambda _: None})
    try:
        question = [TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in dict.fromkeys(sources)]
        answer = asking.offsets_for_times(question, timeout=limit_s)
    except KafkaException:
        return {}
    finally:
        asking.close()
    return {
        (found.topic, found.partition): found.offset for found in answer if found.error is None and found.offset >= 0
    }

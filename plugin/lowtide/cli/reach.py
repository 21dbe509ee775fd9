"""Whether the source topics still reach back to what a commit has to read again (R17)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.errors import LowtideError
from lowtide_snapshots.format.manifest import Manifest

__all__ = ["gone", "unreachable"]


def unreachable(conf: Conf, manifests: Iterable[Manifest]) -> tuple[dict[str, list[str]], str]:
    """Ask Kafka from which commits a job cannot begin any more.

    Returns:
        By the snapshot's id what is gone, in words; and why it is not known, empty if it is.
    """
    kept = list(manifests)
    names = sorted({front.source for manifest in kept for front in manifest.fronts})
    try:
        topics = Topics(conf.kafka)
        there = set(topics.names())
        found = topics.describe_all([name for name in names if name in there])
        earliest = topics.earliest(found)
    except LowtideError as error:
        return {}, error.what
    lost = {manifest.id: gone(manifest, found, earliest) for manifest in kept}
    return {id_: what for id_, what in lost.items() if what}, ""


def gone(manifest: Manifest, topics: Sequence[Topic], earliest: Mapping[tuple[str, int], int]) -> list[str]:
    """Say of each front what the sources do not have any more.

    Args:
        manifest: Has the offsets.
        topics: Those that are there.
        earliest: By topic and partition the first offset that is there.
    """
    ids = {topic.name: topic.id for topic in topics}
    found = []
    for front in manifest.fronts:
        place = f"{front.source}-{front.partition}"
        first = earliest.get((front.source, front.partition))
        if first is None or ids.get(front.source) != front.topic_id:
            found.append(f"{place} is gone")
        elif first > front.offset:
            found.append(f"{place} begins at offset {first}, and would be read from {front.offset}")
    return found

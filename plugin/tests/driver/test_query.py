"""Options of Spark's Kafka source."""

from __future__ import annotations

import json

from lowtide.driver.query import starting_offsets


def test_every_partition_is_named_with_where_its_front_begins() -> None:
    """R3: topics may have dashes, and as many partitions as they like."""
    asked = json.loads(starting_offsets({"a-0": 5, "a-11": 0, "a-1-0": 7, "b.c-0": 1 << 40}))
    assert asked == {"a": {"0": 5, "11": 0}, "a-1": {"0": 7}, "b.c": {"0": 1 << 40}}

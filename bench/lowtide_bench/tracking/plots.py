"""Pictures of the tracker's traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide_bench.plot import Plot, points


def plots(result: Mapping[str, Any]) -> dict[str, Plot]:
    """Return the pictures of a result of `lowtide bench tracker`, by the names of their files."""
    rate = f"at {result['asked']['traffic_rate']:g} flushes/s of each worker"
    return {
        "tracker-workers.svg": Plot(
            f"Traffic by workers, {rate}",
            "workers",
            "a second",
            {
                "messages in": points(result["by_workers"], "workers", "messages_in_per_s"),
                "messages out": points(result["by_workers"], "workers", "messages_out_per_s"),
                "bytes, both ways": points(result["by_workers"], "workers", "bytes_per_s"),
            },
        ),
        "tracker-records.svg": Plot(
            "Traffic of one worker by its records",
            "records a second",
            "a second",
            {
                "messages": points(result["by_records"], "records_per_s", "messages_per_s"),
                "acks": points(result["by_records"], "records_per_s", "acks_per_s"),
                "bytes": points(result["by_records"], "records_per_s", "bytes_per_s"),
            },
        ),
        "tracker-depth.svg": Plot(
            f"Traffic by segments, {rate}",
            "segments",
            "a second",
            {
                "messages in": points(result["by_depth"], "depth", "messages_in_per_s"),
                "messages out": points(result["by_depth"], "depth", "messages_out_per_s"),
                "bytes out": points(result["by_depth"], "depth", "bytes_out_per_s"),
            },
        ),
        "tracker-shards.svg": Plot(
            "Work of the busiest shard",
            "shards",
            "a flush of a worker",
            {
                "acks": points(result["by_shards"], "shards", "acks_per_flush"),
                "bytes": points(result["by_shards"], "shards", "bytes_in_per_flush"),
                "messages": points(result["by_shards"], "shards", "messages_in_per_flush"),
            },
        ),
    }

"""The figures of `lowtide bench tracker` as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.tables import Table, number

Columns = Sequence[tuple[str, str, int]]
"""(heading, key, digits after the point)."""

_PACED: Columns = (
    ("messages in/s", "messages_in_per_s", 0),
    ("out/s", "messages_out_per_s", 0),
    ("bytes in/s", "bytes_in_per_s", 0),
    ("out/s", "bytes_out_per_s", 0),
    ("acks/s", "acks_per_s", 0),
    ("CPU, µs a flush", "cpu_us_per_flush", 1),
    ("notified p50, ms", "notify_p50_ms", 2),
    ("p99, ms", "notify_p99_ms", 2),
    ("others, cores", "others_cores", 2),
)
_RECORDS: Columns = (
    ("records/s", "records_per_s", 0),
    ("messages/s", "messages_per_s", 0),
    ("acks/s", "acks_per_s", 0),
    ("bytes/s", "bytes_per_s", 0),
    ("messages a record", "messages_per_record", 4),
)
_SHARDS: Columns = (
    ("shards", "shards", 0),
    ("acks a flush, busiest shard", "acks_per_flush", 2),
    ("messages", "messages_in_per_flush", 0),
    ("bytes", "bytes_in_per_flush", 0),
    ("reports a round", "reports_per_round", 0),
    ("merge: messages a round", "merge_messages_in_per_round", 0),
    ("bytes", "merge_bytes_in_per_round", 0),
    ("bytes a flush, all shards", "worker_bytes_out_per_flush", 0),
)
_SERVED: Columns = (
    ("shards", "shards", 0),
    ("acks a flush, busiest shard", "acks_per_flush", 2),
    ("messages", "messages_in_per_flush", 2),
    ("bytes", "bytes_in_per_flush", 0),
    ("CPU, µs", "cpu_us_per_flush", 1),
    ("merge: messages in a flush", "merge_messages_in_per_flush", 2),
    ("out", "merge_messages_out_per_flush", 2),
    ("CPU, µs", "merge_cpu_us_per_flush", 1),
    ("notified p50, ms", "notify_p50_ms", 2),
    ("p99, ms", "notify_p99_ms", 2),
)
_RELAYS: Columns = (
    ("workers", "workers", 0),
    ("relays", "relays", 0),
    ("messages in a round", "messages_in_per_round", 0),
    ("acks", "acks_in_per_round", 0),
    ("bytes", "bytes_in_per_round", 0),
    ("notices out", "notices_out_per_round", 0),
    ("bytes", "bytes_out_per_round", 0),
    ("a relay: messages in", "relay_messages_in_per_round", 0),
    ("notices out", "relay_notices_out_per_round", 0),
)
_KEYED: Columns = (
    ("flushes", "flushes", 0),
    ("acks", "acks", 0),
    ("notices sent", "notices", 0),
    ("entries in them", "entries", 0),
)


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return capacity and latency, then traffic by workers, depth, records and shards."""
    full, notified, asked = result["capacity"], result["latency"], result["asked"]
    rows = [
        (
            "acks/s",
            number(result["acks_per_s"], 0),
            f"{full['workers']} workers, {full['cpu_share']:.0%} of a core, {_others(full)}",
        ),
        ("acks per s of the tracker's CPU", number(full["acks_per_cpu_s"], 0), "the same"),
        ("advances/s", number(result["advances_per_s"], 0), "two workers"),
        ("notified, p50, ms", number(result["notify_p50_ms"], 2), _pace(full, notified)),
        ("notified, p99, ms", number(result["notify_p99_ms"], 2), "the same"),
        ("and read, p50, ms", number(notified["notify_read_p50_ms"], 2), "by one process for all workers"),
        ("and read, p99, ms", number(notified["notify_read_p99_ms"], 2), "the same"),
    ]
    yield Table(f"One process, flushes of {asked['entries']} acks, {asked['depth']} segments", ("", "", "with"), rows)
    at = f"at {asked['traffic_rate']:g} flushes/s of each"
    yield _listed(f"By workers, {at}", (("workers", "workers", 0), *_PACED), result["by_workers"])
    yield _listed(
        f"By segments, {full['workers']} workers, {at}", (("segments", "depth", 0), *_PACED), result["by_depth"]
    )
    yield _listed("By records of one worker, counted", _RECORDS, result["by_records"])
    yield _listed(f"By shards, {full['workers']} workers, counted", _SHARDS, result["by_shards"])
    yield _listed("With a relay for each 50 workers, counted", _RELAYS, result["by_relays"])
    rows = [
        (f"{case['workers']}, {number(case['rate'], 0)}", case["way"], *(number(case[key], 0) for _, key, _ in _KEYED))
        for case in result["by_early_keys"]
    ]
    heads = ("workers, records/s", "early keys", *(head for head, _, _ in _KEYED))
    yield Table("With early keys, counted: off, all told of everything, or of what they have named", heads, rows)
    yield _listed(f"By shards, served, {full['workers']} workers, {at}", _SERVED, result["by_shards_served"])


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    found = result["versions"]
    return f"{in_words(result['machine'])}; python {found['python']}, msgspec {found['msgspec']}"


def _pace(full: Mapping[str, Any], notified: Mapping[str, Any]) -> str:
    return f"{full['workers']} workers, {notified['rate']:g} flushes/s of each, {_others(notified)}"


def _others(figures: Mapping[str, Any]) -> str:
    return f"others {figures['others_cores']:.2g} cores"


def _listed(title: str, columns: Columns, cases: Sequence[Mapping[str, Any]]) -> Table:
    rows = [tuple(number(case[key], digits) for _, key, digits in columns) for case in cases]
    return Table(title, tuple(heading for heading, _, _ in columns), rows)

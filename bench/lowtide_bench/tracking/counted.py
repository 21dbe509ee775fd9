"""Traffic that is counted and not timed: of one worker by its records, and of each shard by their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.msgpack import Encoder

from lowtide_bench.tracking.script import START, Script, chain, fronts
from lowtide_tracker import Flush, Graph, LocalTracker, Notice, Traffic
from lowtide_tracker.message_reader import HEAD
from lowtide_tracker.messages import Report
from lowtide_tracker.shards.merge import Merge
from lowtide_tracker.shards.shard import Shard
from lowtide_tracker.shards.sharding import Splitter
from lowtide_tracker.wire import encode

FLUSH_MS = 2
"""As in a host (`worker/host.py`)."""
SLACK_MS = 2
_pack = Encoder().encode


def by_records(rates: Sequence[int], seconds: int) -> list[dict[str, Any]]:
    """Size the flushes of one worker of a middle level, by the records it receives per second, each in its own frame.

    A record is received in segment 1 at the tick of its millisecond and sent on in segment 2. Flushes follow
    `FLUSH_MS`, whenever there is something to flush.
    """
    found = []
    for rate in rates:
        local, traffic = LocalTracker(1, incarnation=1), Traffic()
        made = 0
        for now_ms in range(0, 1_000 * seconds, FLUSH_MS):
            while made * 1_000 < rate * (now_ms + FLUSH_MS):
                tick = START + made * 1_000 // rate // SLACK_MS
                for segment in (1, 2):
                    local.fold(segment, (tick,), local.new_value())
                made += 1
            flush = local.flush()
            if flush is not None:
                _count(traffic, flush)
                local.applied(flush.number)
        found.append(
            {
                "records_per_s": rate,
                "messages_per_s": round(traffic.messages_in / seconds, 1),
                "bytes_per_s": round(traffic.bytes_in / seconds),
                "acks_per_s": round(traffic.acks / seconds, 1),
                "messages_per_record": round(traffic.messages_in / made, 5),
            }
        )
    return found


def by_shards(counts: Sequence[int], *, workers: int, depth: int, entries: int, rounds: int) -> list[dict[str, Any]]:
    """Count the work of each shard and of the merge, by the number of shards; the flushes are the same.

    Shards report, and receive notices, once per round. The busiest shard counts.
    """
    found = []
    for count in counts:
        sharded = _Sharded(count, workers=workers, depth=depth)
        script = Script(0, workers, depth=depth, entries=entries)
        for number in range(rounds):
            for worker in script.workers:
                sharded.flush(script.flush(worker, number))
            sharded.report()
        assert sharded.merge.global_min == script.opens_at(rounds), "min time is not where all flushes let it be"
        busiest = max(sharded.traffic, key=lambda traffic: traffic.acks)
        flushes = workers * rounds
        found.append(
            {
                "shards": count,
                "acks_per_flush": round(busiest.acks / flushes, 2),
                "messages_in_per_flush": round(busiest.messages_in / flushes, 2),
                "bytes_in_per_flush": round(busiest.bytes_in / flushes, 1),
                "reports_per_round": round(busiest.messages_out / rounds, 2),
                "merge_messages_in_per_round": round(sharded.of_merge.messages_in / rounds, 2),
                "merge_bytes_in_per_round": round(sharded.of_merge.bytes_in / rounds, 1),
                "worker_messages_out_per_flush": count,
                "worker_bytes_out_per_flush": round(sum(each.bytes_in for each in sharded.traffic) / flushes, 1),
            }
        )
    return found


class _Sharded:
    """Shards and their merge in one process, with the messages of their connections."""

    def __init__(self, count: int, *, workers: int, depth: int) -> None:
        graph, opening = Graph(chain(depth)), fronts(workers)
        self.merge = Merge(graph, opening, shards=count, start=START, capacity_ticks=1 << 20)
        self.traffic = [Traffic() for _ in range(count)]
        """By shard: parts in, reports out. Notices come from the merge."""
        self.of_merge = Traffic()
        self._shards = [Shard(graph, opening, shard=at, shards=count, start=START) for at in range(count)]
        self._splitters = [Splitter(count) for _ in range(workers)]
        self.report()

    def flush(self, flush: Flush) -> None:
        """Send each shard its part of a worker's flush."""
        parts = self._splitters[flush.worker].split(flush)
        for shard, traffic, part in zip(self._shards, self.traffic, parts, strict=True):
            shard.receive(part)
            _count(traffic, part)

    def report(self) -> None:
        """Report each shard's changes to the merge, and count the notices that follow."""
        for traffic, report in zip(self.traffic, self._reports(), strict=True):
            if report is None:
                continue
            size = HEAD.size + len(_pack(report))
            traffic.messages_out += 1
            traffic.bytes_out += size
            self.of_merge.messages_in += 1
            self.of_merge.bytes_in += size
            for event in self.merge.receive(report):
                assert isinstance(event, Notice)
                self.of_merge.notices += 1
                for shard in self._shards:
                    shard.hear(event)

    def _reports(self) -> Iterator[Report | None]:
        for shard in self._shards:
            yield shard.report()


def _count(traffic: Traffic, flush: Flush) -> None:
    traffic.messages_in += 1
    traffic.bytes_in += len(encode(flush))
    traffic.flushes += 1
    traffic.acks += len(flush.acks)

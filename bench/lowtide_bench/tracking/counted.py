"""Traffic that is counted and not timed: of one worker by its records, by shards, and with relays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.msgpack import Encoder

from lowtide_bench.tracking.script import START, Script, chain, fronts
from lowtide_tracker import Flush, Graph, LocalTracker, Notice, Tracker, Traffic
from lowtide_tracker.message_reader import HEAD
from lowtide_tracker.messages import Report, Sum
from lowtide_tracker.relay import Relay
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


def by_relays(counts: Sequence[int], *, among: int, depth: int, entries: int, rounds: int) -> list[dict[str, Any]]:
    """Count the messages of the tracker by the number of workers, without relays and with one for each `among` workers.

    Each worker flushes once per round, and what a relay has then is one sum. A sender's receiver is with another relay
    where there is one, so no ack cancels at a relay: what it saves are sums at the same segment and tick.
    """
    found = []
    for workers in counts:
        for relays in (0, -(-workers // among)):
            script, tracked = Script(0, workers, depth=depth, entries=entries), _Relayed(relays, workers, depth)
            for number in range(rounds):
                for worker in script.workers:
                    tracked.flush(script.flush(worker, number))
                tracked.sum()
            assert tracked.tracker.global_min == script.opens_at(rounds), "min time is not where all flushes let it be"
            at, lines = tracked.traffic, relays or workers
            found.append(
                {
                    "workers": workers,
                    "relays": relays,
                    "connections": lines,
                    "messages_in_per_round": at.messages_in / rounds,
                    "acks_in_per_round": at.acks / rounds,
                    "bytes_in_per_round": at.bytes_in / rounds,
                    "notices_out_per_round": at.notices * lines / rounds,
                    "bytes_out_per_round": at.bytes_out * lines / rounds,
                    "relay_messages_in_per_round": -(-workers // relays) if relays else 0,
                    "relay_notices_out_per_round": at.notices * -(-workers // relays) / rounds if relays else 0,
                }
            )
    return found


class _Relayed:
    """A tracker with or without relays in one process, with the messages of its connections."""

    def __init__(self, relays: int, workers: int, depth: int) -> None:
        self.tracker = Tracker(Graph(chain(depth)), fronts(workers), start=START, capacity_ticks=1 << 20)
        self.traffic = Traffic()
        """What has come, and what each connection was sent."""
        self._relays = [Relay() for _ in range(relays)]
        for worker in range(workers if relays else 0):
            self._relay(worker).attach(worker, applied=0)

    def _relay(self, worker: int) -> Relay:
        return self._relays[(worker // 2 + worker % 2) % len(self._relays)]

    def flush(self, flush: Flush) -> None:
        """Send a worker's flush to the tracker, or to its relay."""
        if self._relays:
            self._relay(flush.worker).take(flush)
        else:
            self._receive(flush)

    def sum(self) -> None:
        """Send each relay's sum."""
        for number, relay in enumerate(self._relays):
            made = relay.sum()
            assert made is not None, f"relay {number} has flushes"
            self._receive(made)

    def _receive(self, message: Flush | Sum) -> None:
        _count(self.traffic, message)
        for notice in self.tracker.receive(message):
            self.traffic.notices += 1
            self.traffic.bytes_out += len(encode(notice))


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


def _count(traffic: Traffic, flush: Flush | Sum) -> None:
    traffic.messages_in += 1
    traffic.bytes_in += len(encode(flush))
    traffic.flushes += 1
    traffic.acks += len(flush.acks)

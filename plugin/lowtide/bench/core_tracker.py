"""Acks: what the tracker takes of them in a second, from bytes and as values, and what a worker pays to fold them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from lowtide.bench.core_timing import Extent, measured
from lowtide.bench.core_traffic import FLUSH_ENTRIES, FLUSHES, Traffic, tracker
from lowtide_tracker import Flush, Notice, Tracker
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.wire import decode, encode


def acks(extent: Extent) -> dict[str, Any]:
    """Return entries a second, from bytes and as values, and folds a second of workers."""
    rounds = extent.batches(FLUSHES * FLUSH_ENTRIES)
    flushes, notices = _recorded(rounds)
    messages = [encode(flush) for flush in flushes]
    entries = sum(len(flush.acks) for flush in flushes)

    def trial() -> dict[str, float]:
        return {
            "acks_per_s": entries / _from_bytes_s(messages, tracker()),
            "acks_in_process_per_s": entries / _in_process_s(flushes, tracker()),
            "local_fold_per_s": _folds_per_s(notices),
        }

    figures = {name: spread.as_json() for name, spread in measured(trial, extent).items()}
    return {**figures, "entries_per_flush": entries / len(flushes), "flushes": len(flushes)}


def _recorded(rounds: int) -> tuple[list[Flush], list[list[Notice]]]:
    """All flushes of some rounds, and what each round made the tracker say."""
    traffic, listening = Traffic(), tracker()
    flushes: list[Flush] = []
    notices: list[list[Notice]] = []
    for _ in range(rounds):
        made = [flush for worker in traffic.round() if (flush := worker.flush()) is not None]
        said = [notice for flush in made for notice in listening.receive(flush)]
        _tell(traffic, said)
        flushes += made
        notices.append(said)
    assert listening.global_min == traffic.min_time, "every value has been folded twice"
    return flushes, notices


def _from_bytes_s(messages: Sequence[bytes], target: Tracker) -> float:
    """How long a tracker takes for flushes as they come from sockets, one message at a time."""
    reader = MessageReader()
    began = perf_counter()
    for data in messages:
        for kind, payload in reader.feed(data):
            flush = decode(kind, payload)
            assert isinstance(flush, Flush)
            target.receive(flush)
    return perf_counter() - began


def _in_process_s(flushes: Sequence[Flush], target: Tracker) -> float:
    """How long it takes for the same as values."""
    began = perf_counter()
    for flush in flushes:
        target.receive(flush)
    return perf_counter() - began


def _folds_per_s(notices: Sequence[Sequence[Notice]]) -> float:
    """How many folds a second workers do, their flushes included, and hearing of what came of them."""
    traffic = Traffic()
    began = perf_counter()
    for said in notices:
        for worker in traffic.round():
            worker.flush()
        _tell(traffic, said)
    return traffic.folds / (perf_counter() - began)


def _tell(traffic: Traffic, notices: Sequence[Notice]) -> None:
    """Tell all workers of a round's notices, and that their flushes were applied."""
    for worker in traffic.workers:
        worker.applied(worker.unacknowledged()[-1].number)
        for notice in notices:
            worker.hear(notice)

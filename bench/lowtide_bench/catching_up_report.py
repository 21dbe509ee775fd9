"""The figures of `lowtide bench catch-up` as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.sides import OTHERS
from lowtide_bench.tables import Table, number

_NAMES = {"bare": "bare loop", "skeleton": "skeleton", "flow": "flow"}
_ACCOUNTS = ("lost", "duplicated", "faults")


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return the rates by span, each with its ratio to the others and the faults in the flow's output."""
    subjects = result["subjects"]
    others = [name for name in OTHERS if name in subjects and "flow" in subjects]
    headings = [
        "span of timestamps", *(f"{_NAMES[name]}, records/s" for name in subjects),
        *(f"flow, of the {_NAMES[name]}'s" for name in others), "lost, doubled, wrong",
    ]  # fmt: skip
    rows = []
    for span in result["spans"]:
        rates = (number(span["drained_per_s"][name], 0) for name in subjects)
        shares = (number(span["ratios"][name], 3) for name in others)
        rows.append((f"{span['span_s']:g} s", *rates, *shares, _wrong(span["rounds"])))
    yield Table(f"{result['flow']}: a backlog of {result['records']:,} records is worked off", headings, rows)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the setting of the measurement."""
    rounds = len(result["spans"][0]["rounds"])
    return (
        f"{in_words(result['machine'])}; {result['partitions']} partitions, {result['grouping']}, medians of {rounds}"
    )


def _wrong(rounds: list[Mapping[str, Mapping[str, Any]]]) -> str:
    """Records lost, duplicated or wrong in all rounds and subjects; the bare loop's records show no order."""
    sums = (sum(side[name] or 0 for each in rounds for side in each.values()) for name in _ACCOUNTS)
    return ", ".join(f"{each:,}" for each in sums)

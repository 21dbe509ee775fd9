"""The core's figures for people: a table for each kind of record and state of the caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide_bench.machine import in_words
from lowtide_bench.tables import Table

_TITLES = {"raw": "raw() records, running count", "json": "json(dataclass) records, clicks per user"}


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return the steps of all cases, then the stages within them."""
    cases = result["cases"]
    groups = list(dict.fromkeys((case["records"], case["state"]) for case in cases))
    for stages in (False, True):
        for records, state in groups:
            own = [case for case in cases if (case["records"], case["state"]) == (records, state)]
            headings = [f"{case['size']:,}" for case in own]
            if stages:
                title = f"{_TITLES[records]}, {state}: stages, µs a batch, by records in a batch"
                yield Table(title, ("", *headings), list(_stages(own)))
            else:
                title = f"{_TITLES[records]}, {state}: µs a batch / a record, by records in a batch"
                yield Table(title, ("", *headings), list(_steps(own)))


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    found = result["versions"]
    return (
        f"{in_words(result['machine'])}, one "
        f"thread; calibration {result['calibration_us']:.1f} µs; python {found['python']}, msgspec {found['msgspec']}"
    )


def _steps(cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for step in cases[0]["us"]:
        yield (step, *(_pair(case["us"][step], case["size"]) for case in cases))
    yield ("both levels", *(_pair(case["way_us"], case["size"]) for case in cases))
    yield ("samples from quiet moments", *(f"{case['quiet_share']:.0%}" for case in cases))


def _stages(cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for step in cases[0]["us"]:
        for stage in dict.fromkeys(stage for case in cases for stage in case["stages_us"][step]):
            yield (f"{step}: {stage}", *(_us(case["stages_us"][step].get(stage)) for case in cases))


def _pair(us: float, size: int) -> str:
    return f"{_us(us)} / {_us(us / size)}"


def _us(value: float | None) -> str:
    """Round to three digits: more mean nothing."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"

"""The benchmark of what grows: classes are told apart, and each cheap count is of the class that the page gives it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from math import log2
from pathlib import Path

import pytest

from lowtide.cli.main import run as lowtide
from lowtide.core.operators.plain.sink import Message
from lowtide_bench.cli.growth import SWEPT
from lowtide_bench.core_levels import SPAN_TICKS, Receiver
from lowtide_bench.growth.classes import NONE, class_of
from lowtide_bench.growth.job import Job, Miscounted
from lowtide_bench.growth.run import swept
from lowtide_bench.growth.saved import saved
from lowtide_bench.growth.sweeps import SWEEPS

SMALL = (2, 4, 8)


@pytest.mark.parametrize(
    ("growth", "name"),
    [
        (lambda _: 7, "O(1)"),
        (lambda _: 0, "O(1)"),
        (lambda n: 100 + n % 3, "O(1)"),
        (lambda n: 4 + n, "O(n)"),
        (lambda n: 30 * n + n % 2, "O(n)"),
        (lambda n: n * log2(n) + 5, "O(n log n)"),
        (lambda n: 3 * n * n + 9, "O(n^2)"),
        (lambda n: n * n * n, NONE),
        (lambda n: 1_000 / n, NONE),
        (lambda n: n - 2, NONE),
    ],
)
def test_a_series_has_the_slowest_class_that_fits(growth: Callable[[int], float], name: str) -> None:
    assert class_of([(n, growth(n)) for n in (2, 4, 8, 16, 32)]) == name


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fronts", SMALL),
        ("parallelism", SMALL),
        ("both", SMALL),
        ("records", (128, 256, 512)),
        ("keys", (500, 1_000, 2_000)),
        ("ticks", (4, 8, 16)),
    ],
)
def test_what_a_job_exchanges_grows_as_documented(name: str, values: tuple[int, ...]) -> None:
    counts = swept(name, values)["counts"]
    assert {count: found["class"] for count, found in counts.items()} == dict(SWEEPS[name].documented)


def test_parts_are_those_of_the_hash_units_that_changed() -> None:
    found = saved(300, 10, 20)
    assert found["keys kept"] == 300
    assert 0 < found["parts after changes"] <= 20 < found["parts"] <= 128


def test_the_job_delivers_every_record_of_closed_ticks() -> None:
    """Counts per key rise by one with each message, or it raises `Miscounted`."""
    job = Job(fronts=3, parallelism=2, keys=7)
    for _ in range(4):
        job.round(30)
        assert job.waiting == 3 * 30 / SPAN_TICKS


def test_a_record_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Receiver.notice
    taken: list[Message] = []

    def without_one(self: Receiver, message: bytes) -> list[Message]:
        messages = take(self, message)
        if messages and not taken:
            taken.append(messages.pop(0))
        return messages

    monkeypatch.setattr(Receiver, "notice", without_one)
    with pytest.raises(Miscounted, match="is 2 in its message number 1"):
        Job(fronts=1, parallelism=1, keys=3).round(30)


def test_the_command_prints_classes_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert tuple(SWEEPS) == SWEPT
    assert lowtide(["bench", "growth", "--sweeps", "ticks", "--json", "--markdown", "--plots", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    found = json.loads(text.splitlines()[-1])["sweeps"]["ticks"]["counts"]["sums in the table"]
    assert (found["class"], found["documented"]) == ("O(n)", "O(n)")
    assert "| O(n) |" in text
    drawn = ET.fromstring((tmp_path / "growth-ticks.svg").read_text(encoding="utf-8"))
    assert drawn.findall("{http://www.w3.org/2000/svg}polyline")

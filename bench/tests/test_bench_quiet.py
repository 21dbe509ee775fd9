"""Marks and repeats of measurements, by made-up readings of the machine."""

from collections.abc import Iterator
from typing import Any

import pytest

from lowtide_bench.load import Load, Rise
from lowtide_bench.quiet import NOTE, Noise, mark, repeated, shares
from lowtide_bench.sides import note, sides

QUIET, DISTURBED = Noise(0.03, 0.6), Noise(0.4, 0.6)


@pytest.mark.parametrize(
    ("noise", "marked"),
    [
        (Noise(0.15, 0.9), False),
        (Noise(0.16, 0.5), True),
        (Noise(0.0, 0.91), True),
        (Noise(0.0, 1.0, low=False), False),
        (Noise(0.16, 1.0, low=False), True),
    ],
)
def test_others_always_disturb_and_a_full_machine_at_low_rates(noise: Noise, *, marked: bool) -> None:
    assert noise.marked is marked


def test_a_rate_is_low_up_to_5000_and_a_ramp_never() -> None:
    assert [Load(rate, 1, 0).low for rate in (1_000, 5_000, 5_001)] == [True, True, False]
    assert not Rise((100, 200), 1, 0).low


def tries(*noises: Noise) -> tuple[Noise, int, list[str]]:
    """Measure with these readings in turn."""
    readings: Iterator[Noise] = iter(noises)
    said: list[str] = []
    found, count = repeated(lambda: next(readings), lambda noise: noise, said.append, most=3)
    return found, count, said


def test_an_undisturbed_measurement_is_not_repeated() -> None:
    assert tries(QUIET) == (QUIET, 1, [])


def test_a_disturbed_measurement_is_repeated_until_one_is_not() -> None:
    found, count, said = tries(DISTURBED, QUIET)
    assert (found, count) == (QUIET, 2)
    assert said == ["disturbed in try 1 of 3: others used 40% of a core, all together 60% of the machine †"]


def test_after_three_disturbed_tries_the_last_is_kept_with_its_mark() -> None:
    last = Noise(0.2, 0.5)
    found, count, _ = tries(DISTURBED, DISTURBED, last)
    assert (found, count) == (last, 3)
    assert found.as_json(count) == {"others_share": 0.2, "machine_share": 0.5, "marked": True, "tries": 3}


def test_a_mark_stands_at_the_heading_of_the_disturbed_subject_and_is_explained_once() -> None:
    def figures(noise: Noise) -> dict[str, Any]:
        return noise.as_json(1)

    run = {**figures(QUIET), "subjects": ["bare", "skeleton", "flow"]}
    run |= {"skeleton": figures(DISTURBED), "bare": figures(DISTURBED)}
    columns = sides(run, "a flow")
    assert [heading for heading, _ in columns] == ["a flow", "skeleton †", "bare loop †"]
    assert note(columns) == [NOTE]
    assert note(columns[:1]) == []


def test_figures_of_an_earlier_version_have_no_mark() -> None:
    assert mark({"p50_ms": 1.0}) == ""
    assert shares(QUIET.as_json(1)) == "others used 3% of a core, all together 60% of the machine"

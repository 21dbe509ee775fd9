"""The pure parts of `lowtide bench catch-up`: the backlog, its figures, its table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lowtide.cli.main import commands
from lowtide_bench import catching_up_report
from lowtide_bench.arrivals import Arrivals
from lowtide_bench.backlog import Backlog, Drained
from lowtide_bench.catching_up import summary
from lowtide_bench.counted import FIRST_STATE, Counted
from lowtide_bench.feeder import NOW, messages_of
from lowtide_bench.schedule import NS
from lowtide_bench.tables import markdown

END = 1_700_000_000 * NS
MS = 1_000_000


def received(*at_ms: float) -> Arrivals:
    """Arrivals of records 0, 1, ... at these times."""
    rows = [(number, END, END // MS, END + round(at * MS), 0, 1) for number, at in enumerate(at_ms)]
    return Arrivals.of(np.array(rows, np.int64).reshape(-1, 6).T, Counted())


@pytest.mark.parametrize(("count", "span_s"), [(1001, 1.0), (7, 1500.0), (1, 60.0), (50, 0.0)])
def test_a_backlogs_timestamps_go_evenly_over_its_span_in_each_partition(count: int, span_s: float) -> None:
    backlog = Backlog(END, count, span_s)
    times = [backlog.time_of(sequence) for sequence in range(count)]
    assert times == sorted(times)
    assert times[0] == END - round(span_s * NS)
    assert count == 1 or times[-1] == END
    assert max(np.diff(times), default=0) - min(np.diff(times), default=0) <= 1
    messages = list(backlog.messages(Counted(), 2))
    assert [stamp for *_, stamp in messages] == [time // MS for time in times]
    assert [partition for partition, *_ in messages] == [sequence % 2 for sequence in range(count)]


def test_the_feeder_sends_a_backlog_with_its_timestamps_and_a_state_dated_by_its_sending() -> None:
    task = {"flow": "running-count", "partitions": 2}
    backlog = list(messages_of({**task, "backlog": {"end_ns": END, "count": 3, "span_s": 60.0}}))
    assert [stamp for *_, stamp in backlog] == [END // MS - 60_000, END // MS - 30_000, END // MS]
    state = list(messages_of({**task, "state_keys": 3}))
    assert [(partition, stamp) for partition, _, _, stamp in state] == [(0, NOW), (1, NOW), (0, NOW)]
    assert len({key for _, key, _, _ in state}) == 3
    assert Counted().read([value for _, _, value, _ in state])[0].tolist() == [FIRST_STATE - n for n in range(3)]


def test_a_backlog_is_drained_from_the_first_record_that_came_out_to_the_last() -> None:
    assert Drained.of(received(100, 100, 100, 300, 500)) == Drained(0.4, 5.0), "three came before the time began"
    assert Drained.of(received(100, 100)) == Drained(0.0, None)
    assert Drained.of(received()) == Drained(0.0, None)


def side(per_s: float | None, **more: int) -> dict[str, Any]:
    return {"drained_per_s": per_s, "lost": 0, "duplicated": 0, "faults": 0, **more}


def test_rounds_give_medians_and_shares_within_each_round() -> None:
    rounds = [
        {"bare": side(100.0, faults=0), "flow": side(50.0)},
        {"bare": side(200.0), "flow": side(60.0)},
        {"bare": side(300.0), "flow": side(30.0)},
    ]
    found = summary(rounds)
    assert found["drained_per_s"] == {"bare": 200.0, "flow": 50.0}
    assert found["ratios"] == {"bare": 0.3, "skeleton": None}
    assert summary([{"flow": side(None)}]) == {
        "drained_per_s": {"flow": None}, "ratios": {"bare": None, "skeleton": None},
    }  # fmt: skip


def test_the_table_has_a_row_for_each_span_and_says_what_was_wrong() -> None:
    rounds = [{"bare": side(200_000.0), "flow": side(50_000.0, lost=1, faults=2)}] * 2
    result = {
        "flow": "running-count", "records": 1_000_000, "partitions": 2, "grouping": "optimistic",
        "subjects": ["bare", "flow"],
        "spans": [{"span_s": span_s, **summary(rounds), "rounds": rounds} for span_s in (1.0, 1500.0)],
        "machine": {"cores": 2, "model": "a model", "load": 0.1, "load_after": 0.2},
    }  # fmt: skip
    table = markdown(catching_up_report.tables(result), catching_up_report.origin(result))
    assert "| span of timestamps | bare loop, records/s | flow, records/s | flow, of the bare loop's |" in table
    assert "| 1500 s | 200,000 | 50,000 | 0.250 | 2, 0, 4 |" in table
    assert "2 partitions, optimistic, medians of 2" in table


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--spans", "1,1"], "has a number twice; --rounds measures each several times"),
        (["--spans", "a"], "'a' is not a number of seconds"),
        (["--records", "10"], "10 is not in the range x>=1000"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], fault: str) -> None:
    done = CliRunner().invoke(commands, ["bench", "catch-up", *arguments])
    assert done.exit_code == 2
    assert fault in done.output

"""The pure parts of `lowtide bench nexmark`: events as messages, figures, the table, the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from click.testing import CliRunner
from nexmark.generator import Generator
from nexmark.queries import QUERIES

from lowtide.cli.main import commands
from lowtide_bench.nexmark import NAMES, report
from lowtide_bench.nexmark.figures import Speed
from lowtide_bench.nexmark.writing import PARTITIONS, messages_of
from lowtide_bench.tables import markdown

MS = 1_000_000
START = datetime(2026, 3, 1, tzinfo=UTC)


def came(*pairs: tuple[int, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Results by their timestamp and their receipt, ms."""
    return np.array([(stamp, round(at * MS)) for stamp, at in pairs], np.int64).reshape(-1, 2).T


def test_the_backlog_gives_the_rate_and_the_load_the_latency() -> None:
    backlog = np.arange(0, 1_000, dtype=np.int64)
    # 500 records of the log lie between the first result and the last of the backlog, a quarter of a second apart.
    results = came((100, 5_000), (600, 5_250), (5_500, 9_000), *((9_000 + n, 9_010 + n) for n in range(99)))
    speed = Speed.of(came((9_500, 9_600)), backlog, 9_000)
    assert speed == Speed(None, 100.0, 100.0, 1)
    assert Speed.of(results, backlog, 9_000) == Speed(2_000.0, 10.0, 10.0, 99)


def test_without_results_there_are_no_figures() -> None:
    backlog = np.arange(0, 1_000, dtype=np.int64)
    assert Speed.of(came(), backlog, 9_000) == Speed(None, None, None, 0)
    assert Speed.of(came((1, 5), (1, 6)), backlog, 9_000).records_per_s is None
    assert Speed.of(came((1, 5)), np.empty(0, np.int64), 9_000).records_per_s is None


def test_events_become_messages_in_the_order_in_which_they_come() -> None:
    log = Generator(1, 1_000).log(500, START)
    messages = messages_of(log, ["auctions", "bids"])
    assert len(messages) == 490
    assert [due for due, *_ in messages] == sorted(due for due, *_ in messages)
    assert {(source, partition) for _, source, partition, _ in messages} == {("auctions", 0), ("bids", 0), ("bids", 1)}
    assert len(messages_of(log, PARTITIONS)) == 500
    assert messages_of(Generator(1, 1_000).log(1, START), ["bids"]) == []


def test_all_queries_are_there() -> None:
    assert tuple(QUERIES) == NAMES


def test_the_table_names_an_answer_that_is_not_equal() -> None:
    figures = {"records_per_s": 1234.5, "p50_ms": None, "p99_ms": None, "results": 0}
    result = {
        "queries": [{"name": "q4", "equal": False, **figures}],
        "records": 1_000,
        "rate": 100,
        "seconds": 1.0,
        "seed": 7,
    }
    text = markdown(report.tables(result), "a machine")
    assert "| q4 | NO | 1,234 | - | - | 0 |" in text


@pytest.mark.parametrize("given", ["q9", "q1,x", ""])
def test_a_query_that_is_not_there_is_refused(given: str) -> None:
    done = CliRunner().invoke(commands, ["bench", "nexmark", "--queries", given])
    assert done.exit_code == 2
    assert "is none of q0, q1" in done.output

"""The benchmark of state on disk: what it draws, what it limits, and that a key that is lost is seen."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from rich.console import Console

from lowtide.worker import saver as saver_module
from lowtide_bench import state_report
from lowtide_bench.cli.state import Size
from lowtide_bench.state import process
from lowtide_bench.state.limit import LimitRefused, limited
from lowtide_bench.state.traffic import STRIDE, Draw, Packer, counts_of, first_counts
from lowtide_bench.tables import markdown, shown

KEYS = 2_000


def task(folder: Path, **others: Any) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "cgroup": "",
        "on_disk": True,
        "saves": True,
        "keys": KEYS,
        "state_bytes": 80,
        "memory_mb": 0,
        "disk_max_gb": 1.0,
        "copies_max_gb": 0.0,
        "seconds": 0.05,
        "warmup_s": 0.01,
        "batch": 50,
        "rate": 1_000,
    } | others


@pytest.fixture
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver_module, "PATIENCE_S", 0.2)  # Other tests keep the machine busy.


@pytest.mark.usefixtures("_no_patience")
def test_all_states_come_back_and_a_record_that_is_not_counted_is_seen(tmp_path: Path) -> None:
    pytest.importorskip("lmdb", reason="lowtide[disk] is not installed")
    said: list[str] = []
    asked = task(tmp_path)
    found = process._host(asked, said.append)
    snapshot = found["snapshot"]
    assert found["gauges"]["misses"] > 100
    assert found["records"]["out"] <= found["records"]["sent"]
    assert found["paced"]["p99_ms"] >= found["paced"]["p50_ms"] > 0
    assert sum(part["rows"] for part in snapshot["parts"]) == KEYS
    back = process._recovery(asked | {"snapshot": snapshot}, said.append)
    assert (back["lost"], back["rows"]) == (0, KEYS)
    assert len({line.partition(":")[0] for line in said}) > 8, said
    one_more = [*snapshot["drawn"], ("uniform", 99, 1)]
    assert process._recovery(asked | {"snapshot": snapshot | {"drawn": one_more}}, said.append)["lost"] == 1
    fewer = snapshot["parts"][1:]
    gone = process._recovery(asked | {"snapshot": snapshot | {"parts": fewer}}, said.append)
    assert gone["lost"] == snapshot["parts"][0]["rows"]
    assert not list((tmp_path / "state").glob("*/*")), "a host removes its state"


def test_the_tables_have_both_hosts(tmp_path: Path) -> None:
    host = process._host(task(tmp_path, on_disk=False, saves=False, state_bytes=0), lambda _: None)
    host["memory"] = {"rss_mb": 1.0, "anonymous_mb": 1.0, "mapped_mb": 1.0}
    snapshot = {"took_s": 1.0, "pinned_ms": 2.0, "bytes": 3, "meanwhile": host["paced"]}
    result = {
        "disk": host | {"snapshot": snapshot},
        "memory": host,
        "recovery": {"took_s": 4.0, "lost": 0, "memory": host["memory"]},
        "limited_by": "nothing",
        "asked": {"keys": KEYS, "state_bytes": 80, "memory_bytes": 0, "memory_mb": 0, "rate": 1_000, "batch": 50},
        "machine": {"cores": 2, "model": "x", "load": 1.0, "load_after": 1.0},
    }
    out = io.StringIO()
    tables = list(state_report.tables(result))
    Console(file=out, width=250).print(shown(tables, state_report.origin(result)))
    for text in (out.getvalue(), markdown(tables, state_report.origin(result))):
        for words in ("on disk", "in memory", "Zipf at 1,000/s, p99, ms", "keys without their state", "of memory by"):
            assert words in text


def test_popular_keys_follow_zipfs_law_and_lie_apart() -> None:
    keys = 100_000
    counts = np.bincount(Draw(keys, "zipf", 1).take(400_000), minlength=keys)
    ranks = np.arange(1, keys + 1)
    shares = counts[ranks * STRIDE % keys].cumsum() / 400_000
    expected = np.log(ranks + 1) / np.log(keys + 1)
    assert np.abs(shares - expected).max() < 0.005
    assert len(set((ranks * STRIDE % keys).tolist())) == keys
    assert not np.bincount(Draw(keys, "uniform", 1).take(400_000), minlength=keys).max() > 30


def test_counts_are_those_of_the_same_draws() -> None:
    draws = [Draw(KEYS, "zipf", 1), Draw(KEYS, "uniform", 2)]
    counts = first_counts(np.arange(KEYS))
    for draw in draws:
        for size in (1, 7, 30_000):
            np.add.at(counts, draw.take(size), 1)
    assert (counts_of(KEYS, [("zipf", 1, 30_008), ("uniform", 2, 30_008)]) == counts).all()


def test_records_below_a_tick_are_counted() -> None:
    packer = Packer()
    packer.message(np.arange(6))
    ticks = [at for at, _ in packer._last]
    assert ticks == sorted(ticks)
    assert [packer.below(tick) for tick in (ticks[0], ticks[2], ticks[-1], ticks[-1] + 1)] == [0, 2, 4, 6]


@pytest.mark.parametrize(("said", "size"), [("0", 0), ("512M", 512 << 20), ("1g", 1 << 30), ("20K", 20 << 10)])
def test_sizes(said: str, size: int) -> None:
    assert Size().convert(said, None, None) == size


def test_other_words_are_no_size() -> None:
    with pytest.raises(click.BadParameter, match="1G"):
        Size().convert("a lot", None, None)


def test_a_process_that_takes_more_than_its_limit_is_killed() -> None:
    with _limited(48 << 20) as limit:
        program = "import sys; sys.stdin.readline(); kept = bytearray(200 << 20); print(len(kept))"
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as taking:
            limit.take(taking.pid)
            out, _ = taking.communicate(b"\n")
        assert (taking.returncode, out) == (-signal.SIGKILL, b"")
        assert limit.peak_mb is None or 0 < limit.peak_mb < 51
    assert not limit.folder.exists()


def _limited(size: int) -> Any:
    try:
        with limited(size):
            pass
    except LimitRefused as refused:
        pytest.skip(refused.what)
    return limited(size)

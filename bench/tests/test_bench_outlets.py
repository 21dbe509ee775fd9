"""`lowtide bench outlets`: its pure parts, and PostgreSQL beside its statement in small."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hanging import HANGS_S
from tests.postgres_server import PostgresMissing, PostgresServer

from lowtide.conf import Conf
from lowtide.conf.tables import PostgresConf
from lowtide.flow.plan.compiler import compile_flow
from lowtide_bench.cli.outlets import STORES as OFFERED
from lowtide_bench.outlets import report
from lowtide_bench.outlets.draining import spread_of
from lowtide_bench.outlets.run import files_late, summary
from lowtide_bench.outlets.servers import asked
from lowtide_bench.outlets.statements import SIZES, WARMUP, compared
from lowtide_bench.outlets.stores import OUTLETS, STORES
from lowtide_bench.schedule import NS
from lowtide_bench.tables import markdown

START_MS = 1_700_000_000_000 // 60_000 * 60_000
MS = 1_000_000


@pytest.mark.parametrize("name", OUTLETS)
def test_each_flow_compiles_and_stages_what_its_store_says(name: str, tmp_path: Path) -> None:
    plan = compile_flow(OUTLETS[name]("job", "in", f"{tmp_path}/job-1"), parallelism=2)
    staged = {sink.name: bool(getattr(sink.step.sink, "staged", False)) for sink in plan.sinks()}
    assert staged == ({"sink": STORES[name].staged} if name in STORES else {"files": True, "rows": False})


def test_the_command_offers_all_stores() -> None:
    assert tuple(STORES) == OFFERED


def test_the_tests_servers_are_found_where_no_test_runs(tmp_path: Path) -> None:
    """What tests import from lies on another path than that of a command."""
    code = """
from pathlib import Path
from lowtide.conf import Conf
from lowtide_bench.outlets.servers import servers
with servers(Conf.load(), Path(), ()):
    pass
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment, timeout=HANGS_S)


def test_the_rate_is_taken_without_a_start_and_an_end() -> None:
    steady = [(second * NS, second * 100) for second in range(11)]
    assert spread_of(steady, 1_000) == (NS // 5, 49 * NS // 5)
    late = [*[(-second * NS, 0) for second in (9, 5, 1)], *steady, (99 * NS, 1_001)]
    assert spread_of(late, 1_000) == spread_of(steady, 1_000), "a mark long after the end is no record"


def test_a_file_is_late_after_its_period_and_a_folder_after_its_minute(tmp_path: Path) -> None:
    folder = tmp_path / "minute=x"
    (folder / "_lowtide").mkdir(parents=True)
    for period in range(3):
        (folder / f"files-0-{START_MS + 5_000 * period}-0.parquet").touch()
    (folder / "_lowtide/files.done.json").write_text(json.dumps({"to": "2023-11-14T22:14:00Z"}))
    there_ms = (folder / f"files-0-{START_MS}-0.parquet").stat().st_ctime_ns / MS
    late = files_late(tmp_path, (START_MS + 5_000) * MS, (START_MS + 10_000) * MS)
    assert late["files"]["count"] == 1, "a boundary is measured if it comes after the first record that counts"
    assert late["files"]["max_ms"] == pytest.approx(there_ms - START_MS - 10_000, abs=1_000)
    assert late["folders"] == {"count": 0, "p50_ms": None, "p99_ms": None, "max_ms": None}


def drained(rate: int, **more: Any) -> dict[str, Any]:
    wrong = {"lost": 0, "duplicated": 0, "marked": False}
    return {"delivered_per_s": rate, "visible_per_s": rate // 2, "visible_after_s": 1.0, **wrong, **more}


def test_each_share_is_of_the_same_round_and_the_table_has_a_row_for_each_part() -> None:
    rounds = [
        {"kafka": drained(100), "delta": drained(90)},
        {"kafka": drained(50), "delta": drained(40, lost=1, marked=True)},
        {"kafka": drained(200), "delta": drained(100)},
    ]
    found = summary(rounds)
    assert (found["kafka"]["of_kafka"], found["delta"]["of_kafka"]) == (1.0, 0.8)
    assert found["delta"]["delivered_per_s"] == 90
    assert summary([{"delta": drained(90)}])["delta"]["of_kafka"] is None
    late = {"count": 25, "p50_ms": 50.0, "p99_ms": 80.0, "max_ms": 81.0}
    times = {"p50_ms": 1.0, "p99_ms": 2.0, "rows_per_s": 1_000}
    sizes = {"1": {"sink": times, "bare": times, "ratios": {"p50_ms": 1.0, "p99_ms": 1.0}}}
    result = {
        "partitions": 2, "grouping": "optimistic", "records": 500_000, "rounds": rounds, "stores": found,
        "paced": {"rate": 1_000, "marked": False, **dict.fromkeys(("rows", "files", "folders"), late)},
        "postgres": {"deliveries": 30, "sizes": sizes},
        "machine": {"cores": 2, "model": "a model", "load": 0.1, "load_after": 0.2},
    }  # fmt: skip
    shown = markdown(report.tables(result), report.origin(result))
    assert "| Delta † | 90 | 0.800 | 45 | 1.0 | 1, 0 |" in shown
    assert "| a file, after its period | 25 | 50 | 80 | 81 |" in shown
    assert "| 1 | 1.00, 2.00 | 1.00, 2.00 | 1.00 | 1.00 | 1,000 |" in shown
    assert "medians of 3; † disturbed in every try" in shown


@pytest.mark.postgres
def test_the_sink_and_the_bare_statement_write_the_same_rows() -> None:
    try:
        server = PostgresServer()
    except PostgresMissing as error:
        pytest.skip(str(error))
    with server:
        conf = dataclasses.replace(Conf(), postgres={"default": PostgresConf(**server.settings)})
        found = compared(3, conf, lambda _: None)
        assert list(found["sizes"]) == [str(size) for size in SIZES]
        assert all(each["sink"]["p50_ms"] > 0 for each in found["sizes"].values())
        kept, bare = (asked(conf, f"select * from {table} order by sequence") for table in ("kept", "bare"))
        assert kept == bare
        assert len(kept) > SIZES[-1]
        assert max(row[2] for row in kept) == WARMUP + 2, "the last turn has written"

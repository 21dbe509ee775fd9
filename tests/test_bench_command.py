"""The benchmark as one runs it: a real Kafka, the bare loop, Spark, and nothing left behind."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]

NAMES = {
    "rate", "sustained_per_s", "p50_ms", "p90_ms", "p99_ms", "p99_all_ms", "max_ms", "boundary_stalls_ms",
    "boundary_stall_max_ms", "lost", "duplicated", "faults", "cpu_s", "start_s", "breakdown", "bare", "versions",
    "machine",
    "skeleton", "subjects", "ratios", "workers_us_per_record", "others_share", "machine_share", "marked",
    "tries",
}  # fmt: skip
LIMIT_S = 480
PATIENT = ["--set", "job.start_limit_s=120", "--set", "worker.start_limit_s=120"]
"""Against a hang. A run starts Kafka, ZooKeeper and, one after the other, two JVMs of Spark."""


def left_behind(marker: str) -> list[str]:
    """Command lines of processes that still run with this value of an environment variable."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def run(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run a command of `lowtide bench` and return its object; it has left nothing behind."""
    # Every process that the run starts inherits this, whatever becomes of its parents.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "lowtide.cli",
            "bench",
            *arguments,
            "--json",
            "--set",
            "job.start_limit_s=120",
            "--set",
            "worker.start_limit_s=120",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=tempfile.mkdtemp(dir=tmp_path),
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert left_behind(f"TMPDIR={tmp_path}") == []
    assert not list(tmp_path.glob("lowtide-bench-*"))
    return result


def test_a_short_run_delivers_every_record_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    load = ["--rate", "200", "--seconds", "5", "--warmup", "1", "--tries", "1"]
    snapshots = ["--snapshot-every", "2", "--state-keys", "300"]
    result = run(tmp_path, "latency", "--flow", "running-count", *load, *snapshots)
    assert result.keys() >= NAMES
    for side in (result, result["skeleton"], result["bare"]):
        assert (side["records"], side["lost"], side["duplicated"]) == (1000, 0, 0)
        assert 0 < side["p50_ms"] <= side["p90_ms"] <= side["p99_ms"] <= side["max_ms"]
        used_s = side["cpu_by_process_s"]
        assert min(used_s["kafka"], used_s["generator"]) > 0
        assert "reader" in used_s, "it may take less than the 10 ms in which the kernel counts"
    for side in (result, result["skeleton"]):
        assert side["faults"] == 0
        # On a machine so busy that nothing came in time there is nothing to divide by.
        assert (side["workers_us_per_record"] or 0) > 0 or side["sustained_per_s"] == 0
    assert result["subjects"] == ["bare", "skeleton", "flow"]
    assert result["ratios"]["skeleton"]["p50_ms"] == pytest.approx(
        result["p50_ms"] / result["skeleton"]["p50_ms"], abs=0.001
    )
    assert {"stages", "python_0", "exchange_1", "python_1", "wait", "sink"} <= result["breakdown"].keys()
    assert {kind for kind, used in result["cpu_by_process_s"].items() if used > 0} >= {"jvm", "workers"}
    assert result["fed_per_s"] > 0
    assert result["snapshots"]["taken"] > 0, result["snapshots"]
    assert 0 < result["gap_quiet_max_ms"] <= result["gap_max_ms"]


@pytest.mark.nightly
def test_output_is_back_after_a_worker_was_killed_and_none_is_lost(tmp_path: Path) -> None:
    load = ["--rate", "100", "--warmup", "4", "--snapshot-every", "1", "--state-keys", "200"]
    result = run(tmp_path, "recovery", "--kill", "worker", "--every", "12", *load)
    assert (result["lost"], result["duplicated"], result["faults"]) == (0, 0, 0)
    (kill,) = result["kills"]
    assert kill["who"].startswith("worker ")
    assert kill["incarnation"] == 2
    assert kill["ready_s"] > 0
    assert kill["output_back_s"] > 0
    assert kill["commit_age_s"] is not None, result["snapshots"]


@pytest.mark.nightly
def test_a_backlog_is_worked_off_whatever_time_it_covers(tmp_path: Path) -> None:
    """10,000 s of timestamps: in the time of its records it would not end before the test does."""
    load = ["--spans", "1,10000", "--records", "4000"]
    result = run(tmp_path, "catch-up", *load, "--subjects", "bare,flow")
    assert [span["span_s"] for span in result["spans"]] == [1, 10_000]
    for span in result["spans"]:
        (sides,) = span["rounds"]
        assert (sides["bare"]["lost"], sides["bare"]["duplicated"]) == (0, 0)
        assert (sides["flow"]["lost"], sides["flow"]["duplicated"], sides["flow"]["faults"]) == (0, 0, 0)
        assert sides["flow"]["seconds"] < 60


@pytest.mark.nightly
def test_a_query_of_nexmark_is_measured_and_answers_what_duckdb_does(tmp_path: Path) -> None:
    result = run(tmp_path, "nexmark", "--queries", "q2", "--records", "20000", "--seconds", "3")
    (query,) = result["queries"]
    assert (query["name"], query["equal"]) == ("q2", True)
    assert query["results"] > 0
    assert 0 < query["p50_ms"] <= query["p99_ms"]
    assert query["records_per_s"] > 0

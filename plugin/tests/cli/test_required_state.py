"""`--require-state`: a job without a commit is refused before anything is started or written; a real ZooKeeper."""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from kept_snapshots import commit, record, seal

from lowtide.cli.main import run
from lowtide.driver.recovery import StartFrom
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.errors import NoSuchCommit
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import StoreSetting, open_store

FLOW = """
from dataclasses import dataclass

import lowtide as lt

@dataclass
class Doc:
    word: str

flow = lt.Flow("{job}")
flow.read("docs", lt.kafka("docs", lt.json(Doc))).write("out", lt.kafka("out", lt.json(Doc)))
"""


@pytest.mark.zookeeper
def test_a_job_without_a_commit_is_refused_and_leaves_nothing(zookeeper: str, tmp_path: Path) -> None:
    job = f"words-{uuid.uuid4().hex[:8]}"
    (tmp_path / "flow.py").write_text(FLOW.format(job=job))
    mute = socket.create_server(("127.0.0.1", 0))
    """A broker that is up, and is not asked anything before the refusal."""
    settings = {
        "zookeeper.hosts": zookeeper,
        "snapshots.url": tmp_path / "snapshots",
        "job.folder": tmp_path / "jobs",
        "kafka.bootstrap_servers": f"127.0.0.1:{mute.getsockname()[1]}",
        "kafka.reach_limit_ms": 200,
    }

    def start() -> tuple[int, str]:
        """Start it in a process of its own, as a run ends with its process: its limits end that, too."""
        conf = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "lowtide.cli", "run", str(tmp_path / "flow.py"), "--require-state", *conf]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stderr

    code, said = start()
    assert code == 2
    assert f'job "{job}" has no commit, and --require-state refuses' in said
    with JobStore(zookeeper, job) as store:
        assert store.record() is None
        store.freeze(record(job))
        store.take_lease("test", 1.0, lambda _: None)
        store.raise_incarnation()
    assert start()[0] == 2, "a life alone is no state"
    with JobStore(zookeeper, job) as store:
        store.take_lease("test", 1.0, lambda _: None)
        commit(ZooKeeperCommitLog(store), seal(open_store(StoreSetting(str(tmp_path / "snapshots"))), job, 1, tick=10))
    code, said = start()
    assert code == 3
    assert "was started with other values" in said, "with a commit, the next check is that of the record"
    mute.close()


def test_only_a_start_without_state_is_refused() -> None:
    required = StartFrom(require_state=True)
    required.refuse_without_state("job", ["a commit"])
    StartFrom().refuse_without_state("job", [])
    with pytest.raises(NoSuchCommit, match="has no commit"):
        required.refuse_without_state("job", [])
    assert required.without_state([])
    assert not required.without_state(["a commit"])


@pytest.mark.parametrize(
    ("command", "other"),
    [("run", "--allow-no-state"), ("run", "--floors-from=other"), ("recover", "--allow-no-state")],
)
def test_what_begins_without_state_contradicts_it(command: str, other: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, "flow.py", "--require-state", other]) == 2
    assert "which --require-state refuses" in capfd.readouterr().err

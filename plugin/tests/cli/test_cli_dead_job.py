"""`lowtide snapshots` for a job without a driver: a real ZooKeeper, and a store in a folder."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from kept_snapshots import commit, record, seal

from lowtide.cli.main import run
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import Store, StoreSetting, open_store

pytestmark = pytest.mark.zookeeper


class Dead:
    """A job with two commits and one snapshot that is sealed only; it has no driver."""

    def __init__(self, zookeeper: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.job = f"words-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self._zookeeper, self._capfd = zookeeper, capfd
        self.files: Store = open_store(StoreSetting(str(folder)))
        self.live()
        self.first = seal(self.files, self.job, 1, tick=10)
        self.second = seal(self.files, self.job, 2, tick=20, base=self.first)
        with self.store() as store:
            log = ZooKeeperCommitLog(store)
            commit(log, self.first)
            commit(log, self.second)
        self.sealed = seal(self.files, self.job, 3, tick=30, base=self.second, name="by hand")

    def store(self) -> JobStore:
        return JobStore(self._zookeeper, self.job)

    def live(self) -> None:
        """Begin a life, and end it."""
        with self.store() as store:
            store.freeze(record(self.job))
            store.take_lease("test", 1.0, lambda _: None)
            store.raise_incarnation()

    def part(self, manifest: Manifest) -> Path:
        return self.folder / manifest.parts[0].name(self.job, 10)

    def ids(self) -> list[str]:
        return [each["id"] for each in self.json("list", self.job)]

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Call `lowtide snapshots` and return what it says."""
        settings = {
            "zookeeper.hosts": self._zookeeper,
            "snapshots.url": self.folder,
            "kafka.bootstrap_servers": "127.0.0.1:1",
            "kafka.reach_limit_ms": 200,
        }
        conf = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
        self._capfd.readouterr()
        found = run(["snapshots", *arguments, *conf])
        said = self._capfd.readouterr()
        assert found == code, said
        return said.out, said.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code)[0])


@pytest.fixture(name="dead")
def _dead(zookeeper: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Dead:
    return Dead(zookeeper, tmp_path, capfd)


def test_a_dead_jobs_snapshots_are_listed_shown_and_compared(dead: Dead) -> None:
    first, second, sealed = dead.json("list", dead.job)
    assert (first["phase"], first["last"], first["parts"]) == ("committed", False, 2)
    assert (second["phase"], second["last"], second["base"]) == ("committed", True, dead.first.id)
    assert (sealed["phase"], sealed["name"], sealed["committed"]) == ("sealed", "by hand", None)
    lines = dead("list", dead.job)[0].splitlines()
    assert "the last commit" in lines[2]
    assert "by hand" in lines[3]
    shown = dead("show", dead.job)[0]
    assert "holds     all before 1970-01-01 00:00:00.200 UTC (tick 20 of 10 ms)" in shown
    assert "counts  scan   word string  int64" in shown
    assert "docs-0     40" in shown
    assert json.loads(dead.second.to_json()) == dead.json("show", dead.job)["content"]
    between = dead.json("diff", dead.job, dead.first.id)
    assert (between["fronts"][0]["records"], between["steps"][0]["changed"]) == (20, 1)
    assert "docs-0     20      40    20" in dead("diff", dead.job, dead.first.id)[0]


def test_damage_is_found_and_ends_with_6(dead: Dead) -> None:
    assert dead("verify", dead.job)[0].startswith(f"snapshot {dead.second.id} is whole: 2 parts")
    file = dead.part(dead.second)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    text = dead("verify", dead.job, "--all", code=6)[0]
    assert f"snapshot {dead.second.id} is DAMAGED, 1 of 2 parts:\n  {dead.job}/parts/counts/00001/" in text
    assert f"snapshot {dead.first.id} is whole" in text
    assert [each["whole"] for each in dead.json("verify", dead.job, "--all", code=6)] == [True, False, True]


def test_what_is_sealed_is_committed_by_hand_once_and_only_if_it_is_whole(dead: Dead) -> None:
    held = dead.part(dead.sealed).read_bytes()
    dead.part(dead.sealed).unlink()
    assert "DAMAGED" in dead("commit", dead.job, "by hand", code=6)[1]
    assert not dead.json("list", dead.job)[2]["committed"]
    dead.part(dead.sealed).write_bytes(held)
    assert "is committed, at" in dead("commit", dead.job, "by hand")[0]
    assert "was committed already, at" in dead("commit", dead.job, dead.sealed.id)[0]
    assert [each["last"] for each in dead.json("list", dead.job)] == [False, False, True]


def test_what_an_earlier_life_sealed_is_not_committed(dead: Dead) -> None:
    dead.live()
    said = dead("commit", dead.job, "by hand", code=6)[1]
    assert "can no longer be committed" in said
    assert "the job is in life 2" in said
    assert len([each for each in dead.json("list", dead.job) if each["committed"]]) == 2


def test_prune_keeps_what_is_needed_and_warns(dead: Dead) -> None:
    planned = dead.json("prune", dead.job, "--keep", "1", "--dry-run")
    assert (planned["dropped"], planned["kept"]) == ([dead.first.id], [dead.second.id])
    assert "no Kafka broker answers" in planned["sources_unknown"]
    assert len(dead.ids()) == 3, "a dry run drops nothing"
    out, err = dead("prune", dead.job, "--keep", "1")
    assert out.startswith(f"dropped 1 commit: {dead.first.id}; deleted 1 manifest and 1 part, ")
    assert "warning: cannot check whether the sources still reach back to the kept commits" in err
    assert dead.ids() == [dead.second.id, dead.sealed.id]
    dead("verify", dead.job, "--all")
    assert dead.json("prune", dead.job, "--max-age", "1s")["kept"] == [dead.second.id], "the last one stays"


def test_an_unknown_job_a_dead_zookeeper_and_another_folder_are_plain_errors(
    dead: Dead, zookeeper: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, err = dead("list", f"{dead.job}x", code=4)
    assert (out, f"there are: {dead.job}" in err) == ("", True)
    assert f'there never was a job "{dead.job}x"' in err
    limits = ["--set", "zookeeper.hosts=127.0.0.1:1", "--set", "zookeeper.reach_limit_s=0.5"]
    assert run(["snapshots", "list", dead.job, *limits]) == 4
    assert "127.0.0.1:1" in capfd.readouterr().err
    elsewhere = ["--set", f"zookeeper.hosts={zookeeper}", "--set", f"snapshots.url={tmp_path / 'elsewhere'}"]
    assert run(["snapshots", "show", dead.job, *elsewhere]) in (4, 6)
    assert "elsewhere" in capfd.readouterr().err
    assert run(["snapshot", dead.job, "--set", f"zookeeper.hosts={zookeeper}"]) == 4
    assert f'job "{dead.job}" does not run' in capfd.readouterr().err

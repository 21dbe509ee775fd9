"""The commands about snapshots without services: a store in a folder, a control API that a test plays."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from controlled import ControlledJob, controlled
from hanging import HANGS_S
from kept_snapshots import commit, seal
from seen import SHAPE
from sleeping_job import sleeping

from lowtide.cli.main import run
from lowtide.cli.output import Age, IsoTime, size, time_of
from lowtide.cli.prune_plan import PrunePlan, gone
from lowtide.cli.refusals import fence_fails_snapshot
from lowtide.cli.snapshot import take
from lowtide.connectors.topics import Topic
from lowtide.errors import (
    AlreadyRunning,
    FlowError,
    LowtideError,
    ServiceUnavailable,
    SnapshotDamaged,
    SnapshotFailed,
)
from lowtide.events import EventLog
from lowtide.status.job_view import SnapshotView
from lowtide.wording import count_of
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.known import KnownSnapshots
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.errors import (
    CommitRefused,
    CommitUnknown,
    EntryDiffers,
    Fenced,
    LeaseTaken,
    ManifestDamaged,
    NoGoodCommit,
    NoSuchCommit,
    PartDamaged,
    RecordDiffers,
    ZooKeeperUnavailable,
)
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_snapshots.stores.errors import StoreDamaged

VIEW = SnapshotView(
    id="000003-0001", name=None, phase="taking", min_time_ms=1000, parts=2, parts_done=1, rows=1, bytes=10,
    began="2026-01-02T03:04:05.000Z", took_s=0.1, waits_for=["worker 1/0 has saved 1 of 2 parts"],
)  # fmt: skip
COMMITTED = msgspec.structs.replace(VIEW, phase="committed", parts_done=2, waits_for=[])
FAILED = msgspec.structs.replace(VIEW, phase="failed", why=Cause("other", "min time stands", way_out="ask again"))


# -- what people write and read ----------------------------------------------------------------------------------------


def test_times_ages_and_sizes() -> None:
    assert IsoTime()("2026-01-02T03:04:05.678") == IsoTime()("2026-01-02T05:04:05.678+02:00") == 1767323045678
    assert IsoTime()("2026-01-02T23:59:59.9999999") == IsoTime()("2026-01-02T23:59:59.999"), "cut down, to no later day"
    assert time_of(1767323045678) == "2026-01-02 03:04:05.678"
    assert [Age()(text) for text in ("45", "45s", "1.5m", "2h", "30d", "1w")] == [45, 45, 90, 7200, 2_592_000, 604_800]
    for kind, wrong in ((IsoTime(), "yesterday"), (Age(), "0d"), (Age(), "\u0663d"), (Age(), "3 days"), (Age(), "-1h")):
        with pytest.raises(click.BadParameter, match="write it as"):
            kind(wrong)
    assert [size(bytes_) for bytes_ in (1023, 1536, 5 << 20, 3 << 30)] == [
        "1023 bytes",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
    assert [count_of(0, "part"), count_of(1, "part"), count_of(1234, "part")] == ["0 parts", "1 part", "1,234 parts"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["recover", "flow.py", "--commit", "a", "--time", "2026-01-01"],
        ["recover", "flow.py", "--time", "soon"],
        ["snapshots", "verify", "job", "--all", "one"],
        ["snapshots", "prune", "job", "--keep", "0"],
        ["snapshots", "diff", "job"],
        ["snapshot", "job", "--name", ""],
        ["stop", "--force"],
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "error: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("theirs", "ours", "code"),
    [
        (NoSuchCommit, LowtideError, 2),
        (RecordDiffers, FlowError, 3),
        (ZooKeeperUnavailable, ServiceUnavailable, 4),
        (CommitUnknown, ServiceUnavailable, 4),
        (LeaseTaken, AlreadyRunning, 4),
        (ManifestDamaged, SnapshotDamaged, 6),
        (PartDamaged, SnapshotDamaged, 6),
        (StoreDamaged, SnapshotDamaged, 6),
        (NoGoodCommit, SnapshotDamaged, 6),
        (CommitRefused, SnapshotFailed, 6),
        (Fenced, SnapshotFailed, 6),
        (EntryDiffers, SnapshotFailed, 6),
    ],
)
def test_what_the_snapshots_refuse_has_an_exit_code_of_ours(
    theirs: type[LowtideError], ours: type[LowtideError], code: int
) -> None:
    with pytest.raises(ours) as raised, fence_fails_snapshot():
        raise theirs("what", where="where", way_out="do")
    assert (raised.value.exit_code, str(raised.value)) == (code, "what\n  where: where\n  what to do: do")


def test_sources_that_do_not_reach_back_are_named(tmp_path: Path) -> None:
    manifest = seal(open_store(StoreSetting(str(tmp_path))), "words", 1, tick=10)
    docs = Topic("docs", 1, "CreateTime", "delete", "x")
    assert gone(manifest, [docs], {("docs", 0): 20}) == []
    assert gone(manifest, [docs], {("docs", 0): 21}) == ["docs-0 begins at offset 21, but would be read from 20"]
    assert gone(manifest, [], {}) == ["docs-0 is gone"]
    remade = Topic("docs", 1, "CreateTime", "delete", "y")
    assert gone(manifest, [remade], {("docs", 0): 0}) == ["docs-0 is gone"]


# -- a store and a log -------------------------------------------------------------------------------------------------


def test_snapshots_are_found_by_id_name_and_age_and_said_as_they_are(tmp_path: Path) -> None:
    files, log = open_store(StoreSetting(str(tmp_path))), MemoryCommitLog("words")
    log.raise_incarnation()
    place = KnownSnapshots(log, files)
    with pytest.raises(NoSuchCommit, match="has no commits"):
        place.find(None)
    older, newer = (seal(files, "words", number, tick=10 * number, name="kept") for number in (1, 2))
    missed, sealed = seal(files, "words", 3, tick=15), seal(files, "words", 4, tick=40, name="later", base=newer)
    commit(log, older)
    commit(log, newer)
    found = {known.id: known.phase for known in place.all()}
    assert found == {older.id: "committed", missed.id: "over", newer.id: "committed", sealed.id: "sealed"}
    assert [known.min_time_ms for known in place.all()] == [100, 150, 200, 400]
    for asked, id_ in ((None, newer.id), ("kept", newer.id), (older.id, older.id), ("later", sealed.id)):
        assert place.find(asked).id == id_
    with pytest.raises(NoSuchCommit, match='has no snapshot "gone"') as raised:
        place.find("gone")
    assert f'{sealed.id} "later", {newer.id} "kept"' in raised.value.where
    log.raise_incarnation()
    assert {known.phase for known in place.all() if known.commit is None} == {"over"}


def test_a_named_snapshot_is_dropped_by_its_name(tmp_path: Path) -> None:
    files, log = open_store(StoreSetting(str(tmp_path))), MemoryCommitLog("words")
    log.raise_incarnation()
    place = KnownSnapshots(log, files)
    older, last = (seal(files, "words", number, tick=10 * number, name=f"kept-{number}") for number in (1, 2))
    sealed = seal(files, "words", 4, tick=40, name="later", base=last)
    commit(log, older)
    commit(log, last)
    for asked, why in (("kept-2", "needed: it is the last one"), ("later", "is not committed"), ("x", "no snapshot")):
        with pytest.raises(LowtideError, match=why) as refused:
            PrunePlan.of(place, [asked])
        assert refused.value.exit_code == 2
    assert {known.id for known in place.all()} == {older.id, last.id, sealed.id}
    pruning = PrunePlan.of(place, ["kept-1"])
    assert pruning.said(dry_run=True) == f"would drop 1 commit: {older.id}; 1 commit kept"
    pruning.carry_out()
    assert pruning.said(dry_run=False).startswith(f"dropped 1 commit: {older.id}; deleted 1 manifest and 2 parts")
    assert {known.id for known in place.all()} == {last.id, sealed.id}
    newest = seal(files, "words", 5, tick=50, base=last)
    commit(log, newest)
    PrunePlan.of(place, [last.id]).carry_out()
    assert [each.id for each in log.commits()] == [newest.id]


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_a_damaged_manifest_is_listed_with_the_reason(tmp_path: Path, harm: str) -> None:
    files, log = open_store(StoreSetting(str(tmp_path))), MemoryCommitLog("words")
    log.raise_incarnation()
    manifest = seal(files, "words", 1, tick=10)
    commit(log, manifest)
    file = tmp_path / manifest.path
    file.unlink() if harm == "gone" else file.write_bytes(b"?")
    known = KnownSnapshots(log, files).find(None)
    assert (known.phase, known.manifest) == ("committed", None)
    assert ("no such object" if harm == "gone" else "its SHA-256 is") in known.why


# -- taking ------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="job")
def _job() -> Iterator[ControlledJob]:
    with controlled(SHAPE, EventLog("index", 3)) as job:
        yield job


def test_a_snapshot_is_waited_for_and_its_end_said(job: ControlledJob) -> None:
    client = job.client()
    job.taking = [VIEW, VIEW, msgspec.structs.replace(VIEW, phase="sealed"), COMMITTED]
    assert take(client, "index", "mine") == COMMITTED
    job.taking = [VIEW, msgspec.structs.replace(VIEW, phase="sealed")]
    assert take(client, "index", None, commit=False).phase == "sealed"
    assert job.asked == [("mine", True), (None, False)]


def test_a_snapshot_that_fails_comes_late_or_is_forgotten_is_said_with_the_way_out(job: ControlledJob) -> None:
    client = job.client()
    job.taking = [VIEW, FAILED]
    with pytest.raises(SnapshotFailed) as failed:
        take(client, "index", None)
    assert (failed.value.what, failed.value.way_out) == (
        'snapshot 000003-0001 of job "index" failed: min time stands', "ask again",
    )  # fmt: skip
    job.taking = [VIEW]
    with pytest.raises(SnapshotFailed, match=r"not complete after 0\.01 s: worker 1/0 has saved 1 of 2 parts"):
        take(client, "index", None, limit_s=0.01)
    job.taking = [VIEW, msgspec.structs.replace(VIEW, id="000004-0001")]
    with pytest.raises(SnapshotFailed, match="the job no longer knows it"):
        take(client, "index", None)


def test_a_job_is_not_stopped_if_its_snapshot_fails_unless_forced(
    job: ControlledJob, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job.taking = [FAILED]
    conf = ["--set", f"job.folder={tmp_path}"]
    with sleeping(tmp_path, job) as process:
        assert run(["stop", "--with-snapshot", *conf]) == 6
        said = capfd.readouterr().err
        assert 'job "index" was not stopped because its snapshot failed: ' in said
        assert "what to do: ask again; or stop it anyway with --force" in said
        assert process.poll() is None
        assert run(["snapshot", *conf]) == 6
        assert run(["stop", "index", "--with-snapshot", "--force", *conf]) == 5
        assert "warning: stopping without a snapshot" in capfd.readouterr().err
        assert process.wait(HANGS_S) != 0


def test_snapshot_says_what_became_of_it(job: ControlledJob, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job.taking = [COMMITTED]
    with sleeping(tmp_path, job):
        assert run(["snapshot", "--set", f"job.folder={tmp_path}"]) == 0
        text = capfd.readouterr().out
        assert text.startswith(
            "snapshot 000003-0001 committed: all before 1970-01-01 00:00:01.000 UTC, 2 parts written"
        )
        assert run(["snapshot", "index", "--json", "--set", f"job.folder={tmp_path}"]) == 0
        assert json.loads(capfd.readouterr().out)["phase"] == "committed"

"""The snapshots of a job that a reader outside it knows: found by id and name, with the phase of each."""

from pathlib import Path

import pytest
from kept_snapshots import commit, seal

from lowtide_snapshots.commits.known import KnownSnapshots
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.errors import NoSuchCommit
from lowtide_snapshots.stores import StoreSetting, open_store


@pytest.fixture(name="log")
def _log() -> MemoryCommitLog:
    log = MemoryCommitLog("words")
    log.raise_incarnation()
    return log


@pytest.fixture(name="known")
def _known(log: MemoryCommitLog, tmp_path: Path) -> KnownSnapshots:
    return KnownSnapshots(log, open_store(StoreSetting(str(tmp_path))))


def test_a_snapshot_is_committed_sealed_or_over(known: KnownSnapshots, log: MemoryCommitLog) -> None:
    older, newer = (seal(known.files, "words", number, tick=10 * number, name="kept") for number in (1, 2))
    missed, sealed = (seal(known.files, "words", number, tick=tick) for number, tick in ((3, 15), (4, 40)))
    commit(log, older)
    commit(log, newer)
    phases = {each.id: each.phase for each in known.all()}
    assert phases == {older.id: "committed", missed.id: "over", newer.id: "committed", sealed.id: "sealed"}
    assert [each.min_time_ms for each in known.all()] == [100, 150, 200, 400]
    assert known.find().id == known.find("kept").id == newer.id
    assert known.find(sealed.id).incarnation == 1
    log.raise_incarnation()
    assert known.find(sealed.id).phase == "over", "another life has begun"


def test_one_that_is_missing_is_refused_with_those_that_exist(known: KnownSnapshots) -> None:
    with pytest.raises(NoSuchCommit, match="has no commits"):
        known.find()
    with pytest.raises(NoSuchCommit, match="take a snapshot first"):
        known.find("gone")
    sealed = seal(known.files, "words", 1, tick=10, name="later")
    with pytest.raises(NoSuchCommit, match='no snapshot "gone"') as raised:
        known.find("gone")
    assert raised.value.where == f'there are {sealed.id} "later"'


def test_a_manifest_that_cannot_be_read_has_its_reason(known: KnownSnapshots, tmp_path: Path) -> None:
    sealed = seal(known.files, "words", 1, tick=10)
    file = tmp_path / sealed.path
    file.chmod(0o644)
    file.write_bytes(b"?")
    (found,) = known.all()
    assert (found.phase, found.manifest) == ("sealed", None)
    assert found.why

"""Which commit is recovered from: damage falls back, doubt does not."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lowtide_snapshots.commits.choice import choose
from lowtide_snapshots.commits.memory_log import MemoryCommitLog
from lowtide_snapshots.commits.verification import Damage, verify
from lowtide_snapshots.errors import FormatTooNew, NoGoodCommit, NoSuchCommit
from lowtide_snapshots.format.manifest import MANIFEST_FORMAT
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_snapshots.stores.errors import StoreUnavailable


def nobody(_done: int, _total: int) -> None:
    """Gets nothing."""


class Noting:
    """A store that notes what is read of it."""

    def __init__(self, store: Any, read: list[str]) -> None:
        self._store = store
        self._read = read

    def get(self, name: str) -> bytes:
        self._read.append(name)
        return bytes(self._store.get(name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Shop:
    """A job with four commits: at ticks 10, 20 ("savepoint"), 30 and 40, each with a change of unit 1 alone."""

    def __init__(self, folder: Path, takes: Any) -> None:
        self.folder = folder
        self.store = open_store(StoreSetting(str(folder)))
        self.taker = takes("counts", self.store)
        self.log = MemoryCommitLog("counts")
        self.log.raise_incarnation()
        self.manifests = [self.taker.take(10, 1, 2, 3)]
        for tick in (20, 30, 40):
            name = "savepoint" if tick == 20 else None
            self.manifests.append(self.taker.take(tick, 1, base=self.manifests[-1], name=name))
            self.taker.commit(self.log, self.manifests[-2])
        self.taker.commit(self.log, self.manifests[-1])

    def parts(self, place: int) -> list[str]:
        manifest = self.manifests[place]
        return [part.name(manifest.job, 10) for part in manifest.parts]

    def part(self, place: int, unit: int) -> Path:
        manifest = self.manifests[place]
        (part,) = (part for part in manifest.parts if part.unit == unit)
        return self.folder / str(part.name(manifest.job, 10))

    def choose(self, **asked: Any) -> Any:
        return choose(self.log, self.store, progress=nobody, **asked)


@pytest.fixture
def shop(tmp_path: Path, takes: Any) -> Shop:
    return Shop(tmp_path / "store", takes)


def test_the_newest_is_chosen_or_the_one_that_is_asked_for(shop: Shop) -> None:
    for asked, place in (
        ({}, 3),
        ({"commit": shop.manifests[2].id}, 2),
        ({"commit": "savepoint"}, 1),
        ({"before_ms": 300}, 2),
        ({"before_ms": 299}, 1),
    ):
        choice = shop.choose(**asked)
        assert (choice.manifest, choice.commit.id) == (shop.manifests[place], shop.manifests[place].id)
        assert choice.skipped == ()


@pytest.mark.parametrize("asked", [{"commit": "nothing"}, {"before_ms": 99}, {"commit": "savepoint", "before_ms": 199}])
def test_what_is_not_there_is_answered_with_what_is(shop: Shop, asked: Any) -> None:
    with pytest.raises(NoSuchCommit, match=r"(?s)there are 000001-0004 at 400 ms; .*000001-0002 'savepoint' at 200 ms"):
        shop.choose(**asked)
    with pytest.raises(NoSuchCommit, match="has no commits"):
        choose(MemoryCommitLog("counts"), shop.store, progress=nobody)


def test_what_was_verified_a_moment_ago_is_not_read_again(shop: Shop) -> None:
    read: list[str] = []
    chosen = choose(shop.log, Noting(shop.store, read), progress=nobody)
    assert sorted(read) == sorted([chosen.commit.manifest, *shop.parts(3)])
    read.clear()
    again = choose(shop.log, Noting(shop.store, read), progress=nobody, verified=chosen.commit.sha256)
    assert (again, read) == (chosen, [chosen.commit.manifest])


def test_another_commit_than_the_one_that_was_verified_is_verified(shop: Shop, takes: Any) -> None:
    """The manifest's SHA-256 says which commit was meant, and which parts."""
    verified = shop.choose().commit.sha256
    shop.manifests.append(shop.taker.take(50, 1, base=shop.manifests[-1]))
    shop.taker.commit(shop.log, shop.manifests[-1])
    read: list[str] = []
    choice = choose(shop.log, Noting(shop.store, read), progress=nobody, verified=verified)
    assert choice.manifest == shop.manifests[4]
    assert sorted(read) == sorted([choice.commit.manifest, *shop.parts(4)])
    shop.part(4, 1).unlink()
    assert shop.choose(verified=verified).manifest == shop.manifests[3]


def test_damage_falls_back_to_the_commit_before_and_is_reported(shop: Shop) -> None:
    shop.part(3, 1).unlink()
    damaged = shop.part(2, 1)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    choice = shop.choose()
    assert choice.manifest == shop.manifests[1]
    (newest, first), (_, second) = choice.skipped
    assert newest.id == shop.manifests[3].id
    assert first.startswith("1 of its 3 parts are damaged")
    assert first.endswith("it is missing")
    assert "its SHA-256 is" in second


@pytest.mark.parametrize("harm", ["gone", "changed", "another job's"])
def test_a_damaged_manifest_falls_back_too(shop: Shop, takes: Any, harm: str) -> None:
    manifest = shop.folder / shop.manifests[3].path
    if harm == "gone":
        manifest.unlink()
    elif harm == "changed":
        manifest.write_bytes(manifest.read_bytes().replace(b'"lane', b'"Lane') + b" ")
    else:
        other = takes("other").take(50)
        manifest.write_text(other.to_json())
        made = json.loads(shop.log._nodes.get_all([shop.log._paths.last_commit])[0].data)  # type: ignore[union-attr]
        forge(shop, made | {"sha256": sha256(other.to_json().encode())})
    choice = shop.choose()
    assert (choice.manifest, len(choice.skipped)) == (shop.manifests[2], 1)
    with pytest.raises(NoGoodCommit, match=r"(?s)000001-0004 at 400 ms: the manifest of commit 000001-0004 is damaged"):
        shop.choose(commit=shop.manifests[3].id)


def forge(shop: Shop, commit: dict[str, Any]) -> None:
    """Changes a commit behind the log's back."""
    from lowtide_snapshots.zookeeper.nodes import Set

    path = shop.log._paths.commit(commit["tick"], commit["id"])
    shop.log._nodes.write(
        lambda: [Set(path, json.dumps(commit).encode(), 0)] if shop.log._nodes.get_all([path])[0].version == 0 else []  # type: ignore[union-attr]
    )


def test_when_all_are_damaged_each_reason_is_reported(shop: Shop) -> None:
    shop.part(0, 2).unlink()
    with pytest.raises(NoGoodCommit) as raised:
        shop.choose()
    assert all(manifest.id in raised.value.what for manifest in shop.manifests)
    with pytest.raises(NoGoodCommit, match=r"^(?!.*000001-0004).*'savepoint'"):
        shop.choose(commit="savepoint")


def test_what_cannot_be_read_now_is_not_passed_over(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_name: str) -> bytes:
        raise StoreUnavailable("it did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(shop.store, "get", away)
        with pytest.raises(StoreUnavailable):
            shop.choose()
    shop.folder.rename(shop.folder.with_name("not mounted"))
    with pytest.raises(Exception, match="mount it"):
        shop.choose()


def test_the_manifest_of_a_newer_version_is_not_passed_over(shop: Shop) -> None:
    manifest = shop.folder / shop.manifests[3].path
    newer = json.dumps(json.loads(manifest.read_text()) | {"format": MANIFEST_FORMAT + 1})
    manifest.write_text(newer)
    made = json.loads(shop.log._nodes.get_all([shop.log._paths.last_commit])[0].data)  # type: ignore[union-attr]
    forge(shop, made | {"sha256": sha256(newer.encode())})
    with pytest.raises(FormatTooNew, match=f"format {MANIFEST_FORMAT + 1}"):
        shop.choose()


def test_a_commit_that_is_dropped_while_it_is_read_counts_as_never_there(shop: Shop) -> None:
    shop.part(3, 1).unlink()
    get = shop.store.get
    gone = shop.log.commits()[2]

    def dropping(name: str) -> bytes:
        if name == gone.manifest and gone in shop.log.commits():
            shop.log.drop([gone])
            shop.part(2, 1).unlink()
        return get(name)

    shop.store.get = dropping  # type: ignore[method-assign]
    choice = shop.choose()
    assert choice.manifest == shop.manifests[1]
    assert [commit.id for commit, _ in choice.skipped] == [shop.manifests[3].id]


def test_every_kind_of_damage_of_a_part_is_named_and_all_parts_are_looked_at(shop: Shop) -> None:
    assert verify(shop.store, shop.manifests[3], nobody) == []
    first, second, third = (shop.part(3, unit) for unit in (1, 2, 3))
    first.write_bytes(b"")
    second.unlink()
    third.write_bytes(b"x" * third.stat().st_size)
    heard: list[tuple[int, int]] = []
    for threads in (1, 8):
        found = verify(shop.store, shop.manifests[3], lambda *each: heard.append(each), threads=threads)
        assert found == sorted(found)
        assert {Path(damage.part).parent.name: damage.why.split(",")[0][:24] for damage in found} == {
            "00001": "it has 0 bytes",
            "00002": "it is missing",
            "00003": found[2].why[:24],
        }
        assert found[2].why.startswith("its SHA-256 is")
    assert heard == [(0, 3), (1, 3), (2, 3), (3, 3)] * 2
    assert isinstance(found[0], Damage)


def test_a_part_that_is_another_one_is_noticed(shop: Shop) -> None:
    manifest = shop.manifests[3]
    one, two = (part for part in manifest.parts if part.unit in (1, 2))
    data = shop.store.get(two.name("counts", 10))
    shop.part(3, 1).write_bytes(data)
    swapped = dataclasses.replace(one, bytes=len(data), sha256=sha256(data))
    parts = tuple(swapped if part is one else part for part in manifest.parts)
    (found,) = verify(shop.store, dataclasses.replace(manifest, parts=parts), nobody)
    assert "its head says that it is" in found.why

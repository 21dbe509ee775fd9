"""Puts files: whole, under their final names, only where there is none; what is there stays."""

from __future__ import annotations

import hashlib
import json
import mmap
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from lowtide.errors import ServiceUnavailable
from lowtide.sinks.errors import PlaceTaken
from lowtide.sinks.files.done import Fact, done_name, files_in, write_done
from lowtide.sinks.files.fold import FileKey, Piece
from lowtide.sinks.files.groups import GroupFold, Groups
from lowtide.sinks.files.parts import escaped
from lowtide.sinks.files.parts import parts_of as parts_by
from lowtide.sinks.files.pattern import DAY_MS, Pattern
from lowtide.sinks.staged.contract import Carriage, Progress, StagedRow
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_snapshots.stores.errors import AlreadyThere

if TYPE_CHECKING:
    from lowtide.sinks.files.endpoint import Files
    from lowtide.sinks.files.formats import FileWriter

SCRATCH_BYTES = 256 << 10
"""Size up to which an open file is held in memory; larger ones are in scratch files, which a restart never reads."""
PUTTERS = 8
"""Files that are put at once."""
LEAP = 10_000
"""Periods that are over at once above which log time has leapt, as to its end: empty buckets are not written down then.

That is more than the marks that come in one read, so it does not depend on how the log is read.
"""

SWEPT_AFTER_MS = 2 * DAY_MS
"""Log time from a bucket to the one that is complete when its leftovers are swept."""


@dataclass(slots=True)
class _Open:
    """A file that is not put yet.

    Attributes:
        scratch: Its bytes as far as they are written.
        writer: Writes them.
        rows: Its records.
        name: Its name below the root.
    """

    scratch: IO[bytes]
    writer: FileWriter
    name: str
    rows: int = 0


class FilesCarrier:
    """See `lowtide.sinks.staged.contract.Carrier`.

    The files of a group of lanes are a fold of their logs (`groups.py`), so that carriers that begin at a period's
    first records put the same files. A carrier that meets a file that is there keeps it: it has the same records, even
    if another version of Arrow gave them other bytes.
    """

    from_marks = True
    """See `lowtide.sinks.staged.contract.FromMarks`: the lane that is behind begins in a folder that is not done."""

    def __init__(self, files: Files, carriage: Carriage) -> None:
        self._files = files
        self._carriage = carriage
        self._pattern = Pattern(files.pattern)
        self._root = self._pattern.root
        self._sink = escaped(carriage.sink)
        self._scratch: str | None = carriage.settings.get("scratch")
        self._folds: dict[int, GroupFold] = {}
        """By number of the group."""
        self._groups: Groups
        self._open: dict[tuple[int, FileKey], _Open] = {}
        self._ready: list[_Open] = []
        self._facts: dict[str, Fact] = {}
        self._names: dict[int, list[str]] = {}
        """By bucket that is not complete, its first log time, the files put or found there."""
        self._bucket_ms: int | None = None
        """The first bucket that is not complete; None until all lanes have reported."""
        self._seen_ms = 0
        """The log time from which on this carrier sees all; others may have put files before that it does not see.

        That is where the last lane begins, and beyond all that was reported: a life that begins at an older commit
        marks its lanes again from there on, so a lane may begin with a mark below rows that are in their files.
        """
        self._progress: dict[int, Progress] = {}
        self._counts: Counter[str] = Counter()
        self._left = ExitStack()
        self._store: Store
        self._putters: ThreadPoolExecutor

    def follow(self, visible_ms: int) -> None:
        """Take how far earlier carriers have come: files of theirs may be in any folder that begins before."""
        self._seen_ms = visible_ms

    def open(self, kept: Mapping[int, int]) -> Mapping[int, int]:
        """Connect, see that the store puts only what is not there, and that the place is this sink's."""
        try_place(self._files, self._carriage.settings)
        self._store = store_of(self._root, self._carriage.settings)
        self._left.callback(self._store.close)
        self._groups = self._refuse_others()
        self._putters = self._left.enter_context(ThreadPoolExecutor(PUTTERS, "lowtide-files"))
        parts_of = None
        if self._files.partition_by:
            parts_of = parts_by(self._files.record, self._files.partition_by)
        offsets: dict[int, dict[int, int]] = {}
        for lane, offset in kept.items():
            offsets.setdefault(self._group_of(lane), {})[lane] = offset
        self._folds = {group: GroupFold(self._files.limits, parts_of, own) for group, own in offsets.items()}
        self._progress = {lane: Progress(offset) for lane, offset in kept.items()}
        return kept

    def take(self, lane: int, rows: Sequence[StagedRow]) -> None:
        """Add a lane's records to their files (errors: RecordRefused)."""
        group = self._group_of(lane)
        self._write(group, self._folds[group].take(lane, rows))

    def mark(self, lane: int, time_ms: int) -> None:
        """End the files of periods that are over."""
        group = self._group_of(lane)
        self._write(group, self._folds[group].mark(lane, time_ms))

    def resting(self) -> frozenset[int]:
        """Return the lanes whose next records would wait for others."""
        return frozenset[int]().union(*[fold.resting() for fold in self._folds.values()])

    def settle(self, now_s: float) -> None:
        """Put the files that are over, and say of each bucket that is complete that it is."""
        if self._ready:
            futures = [self._putters.submit(self._put, each) for each in self._ready]
            wait(futures)
            self._ready = [each for each, future in zip(self._ready, futures, strict=True) if future.exception()]
            for future in futures:
                self._counts.update(files=1, file_bytes=future.result())
        if self._end_buckets():
            self._progress = {
                lane: Progress(needed, fold.over_ms)
                for fold in self._folds.values()
                for lane, needed in fold.needed().items()
            }

    def progress(self) -> Mapping[int, Progress]:
        """Return by lane how far it was when `settle` returned."""
        return self._progress

    def counts(self) -> Mapping[str, int]:
        """Return the files that it has put or found there, and their bytes."""
        return dict(self._counts)

    def close(self) -> None:
        """Give back the store and the scratch files."""
        for each in self._open.values():
            # Arrow's does it in the end, when its file is closed already.
            with suppress(OSError):
                each.writer.close()
        for each in [*self._open.values(), *self._ready]:
            each.scratch.close()
        self._left.close()

    def _refuse_others(self) -> Groups:
        """Return the groups of lanes that the place's files have, or begin with some.

        A place that has files of another job or another way of naming them is refused: they would be kept.
        """
        files, carriage = self._files, self._carriage
        groups = Groups.wanted(carriage.lanes, carriage.workers)
        own = {
            "job": carriage.job,
            "job_id": carriage.job_id,
            "generation": carriage.generation,
            "lanes": carriage.lanes,
            "pattern": files.pattern,
            "format": files.format.suffix,
            "roll_ms": files.roll_ms,
            "max_file_bytes": files.max_file_bytes,
            "partition_by": list(files.partition_by),
        }
        name = f"_lowtide/{self._sink}.json"
        try:
            self._store.put(name, _text({key: own[key] for key in own if key != "lanes"} | groups.facts))
        except AlreadyThere:
            there = json.loads(self._store.get(name))
            groups = Groups.said(there)
            there["lanes"] = groups.lanes
            for key, value in own.items():
                if there.get(key) != value and not (key == "lanes" and _grown(there.get(key), value)):
                    raise PlaceTaken(
                        f'the files of sink "{carriage.sink}" there have {key} {there.get(key)!r}, not {value!r}',
                        where=f"{self._root}/{name}",
                        way_out="give the sink another name or place: which file has which records depends on it",
                    ) from None
        return groups

    def _group_of(self, lane: int) -> int:
        return self._groups.of(self._carriage.lane_of(lane), self._carriage.lanes)

    def _write(self, group: int, pieces: Sequence[Piece]) -> None:
        try:
            self._add(group, pieces)
        except OSError as error:
            raise ServiceUnavailable(
                f"an open file cannot be written to disk: {error}",
                where=self._scratch or tempfile.gettempdir(),
                way_out=f"make room there, or name another folder: scratch in [files.{self._files.connection}]",
            ) from error

    def _add(self, group: int, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            key = group, piece.file
            file = self._open.get(key)
            if file is None:
                scratch: Any = tempfile.SpooledTemporaryFile(SCRATCH_BYTES, dir=self._scratch)  # noqa: SIM115 - put
                file = self._open[key] = _Open(scratch, self._files.format.writer(scratch), self._name(*key))
            file.writer.add(piece.rows, ends_group=piece.ends_group)
            file.rows += len(piece.rows)
            if piece.last:
                file.writer.close()
                self._ready.append(self._open.pop(key))
                self._names.setdefault(self._pattern.first_ms(piece.file.period_ms), []).append(file.name)

    def _name(self, group: int, key: FileKey) -> str:
        folder = self._pattern.folder(key.period_ms) + key.part
        return f"{folder}{self._sink}-{group}-{key.period_ms}-{key.number}.{self._files.format.suffix}"

    def _put(self, file: _Open) -> int:
        """Put one file, and return its size in bytes; runs in a thread of its own."""
        descriptor = file.scratch.fileno()
        file.scratch.flush()
        data = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        try:
            self._store.put(file.name, data)
        except AlreadyThere:
            pass  # It has these records, as another version of Arrow wrote them.
        else:
            self._facts[file.name] = Fact(file.rows, len(data), hashlib.sha256(data).hexdigest())
        file.scratch.close()
        return len(data)

    def _end_buckets(self) -> bool:
        """Write down each bucket that all lanes have passed, from the one on that the last of them begins in.

        Returns:
            True if all lanes have been heard of. Before, no lane may go on: the next carrier would find it beyond a
            bucket that nobody has written down.
        """
        firsts = [first_ms for fold in self._folds.values() for first_ms in fold.firsts_ms]
        overs = [fold.over_ms for fold in self._folds.values() if fold.over_ms is not None]
        if not firsts or len(firsts) < len(self._progress):
            return False
        if self._bucket_ms is None:
            self._bucket_ms, self._seen_ms = self._pattern.first_ms(min(firsts)), max(self._seen_ms, *firsts)
        due, leaps, next_ms = self._due(self._bucket_ms, min(overs))
        list(self._putters.map(lambda first_ms: self._end_bucket(first_ms, empty=not leaps), due))
        for first_ms in due:
            for name in self._names.pop(first_ms, ()):
                self._facts.pop(name, None)
        self._bucket_ms = next_ms
        return True

    def _due(self, next_ms: int, over_ms: int) -> tuple[list[int], bool, int]:
        """Return the buckets that are over, whether log time has leapt over others, and the next bucket."""
        leaps = over_ms - next_ms > LEAP * self._files.roll_ms
        due: list[int] = []
        while (end_ms := self._pattern.end_ms(next_ms)) <= over_ms:
            if leaps and (next_ms > self._seen_ms or len(due) >= LEAP):
                full = {each for each in self._names if self._pattern.end_ms(each) <= over_ms}
                return sorted(full.union(due)), leaps, self._pattern.first_ms(over_ms)
            due.append(next_ms)
            next_ms = end_ms
        return due, leaps, next_ms

    def _end_bucket(self, first_ms: int, *, empty: bool) -> None:
        """Write down one that has files, or may be empty; runs in a thread of its own."""
        folder, sink, form = self._pattern.folder(first_ms), self._sink, self._files.format
        names = self._names.get(first_ms, [])
        if first_ms <= self._seen_ms:
            names = files_in(self._store, folder, sink, form)
        if names or empty:
            span = first_ms, self._pattern.end_ms(first_ms)
            facts = {name: self._facts.get(name) for name in names}
            write_done(self._store, done_name(folder, sink), span, form, facts)
            # What carriers that were killed left half written is then a day old; it only takes room.
            with suppress(SnapshotsError):
                self._store.sweep(self._pattern.folder(first_ms - SWEPT_AFTER_MS))


def _grown(before: object, lanes: object) -> bool:
    """Return whether a job may have got more lanes since: they write files of names that nobody has used."""
    return isinstance(before, int) and isinstance(lanes, int) and 0 < before < lanes and lanes % before == 0


def store_of(url: str, settings: Mapping[str, Any]) -> Store:
    """Return the store at a place, with the settings of a connection (errors: StoreRefused)."""
    known = {key: value for key, value in settings.items() if key != "scratch"}
    limit_s = known.pop("request_limit_s", 30.0)
    return open_store(StoreSetting(url, limit_s=limit_s, **known))


def try_place(files: Files, settings: Mapping[str, Any]) -> None:
    """See that the place of files puts only what is not there; errors as of `Store.check`."""
    with closing(store_of(f"{Pattern(files.pattern).root}/_lowtide", settings)) as store:
        store.check()


def _text(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, indent=1).encode() + b"\n"

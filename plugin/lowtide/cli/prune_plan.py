"""The plan of a prune: the commits that it drops and keeps, and its warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lowtide.cli.output import size
from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.errors import ConfError, LowtideError
from lowtide.wording import count_of
from lowtide_snapshots.commits.choice import manifest_of
from lowtide_snapshots.commits.known import KnownSnapshots
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.commits.retention import Rule, Swept, bases, plan, sweep
from lowtide_snapshots.errors import FormatTooNew, ManifestDamaged
from lowtide_snapshots.format.manifest import Manifest


@dataclass(slots=True)
class PrunePlan:
    """One prune: planned, then carried out or only shown.

    Attributes:
        job_snapshots: The job's snapshots.
        kept: The commits that stay.
        dropped: Those that go.
        swept: What has gone; None before it was carried out.
        lost: By the id of a kept commit, what it needs and the sources no longer have.
        unknown: Why that is not known; empty if it is.
    """

    job_snapshots: KnownSnapshots
    kept: list[Commit]
    dropped: list[Commit]
    swept: Swept | None = None
    lost: dict[str, list[str]] = field(default_factory=dict)
    unknown: str = ""

    @classmethod
    def planned(cls, job_snapshots: KnownSnapshots, rule: Rule) -> PrunePlan:
        """Say what the rule keeps and drops; nothing is done."""
        log = job_snapshots.log
        based_on = bases(log, job_snapshots.files)
        kept, dropped = plan(log.commits(), log.last(), log.restored(), rule, datetime.now(UTC), based_on=based_on)
        return cls(job_snapshots, kept, dropped)

    @classmethod
    def of(cls, job_snapshots: KnownSnapshots, snapshots: Iterable[str]) -> PrunePlan:
        """Say that these go, ids or names, and all others stay; nothing is done.

        Raises:
            ConfError: there is no such commit, or it is needed: it is the last one, or the current life, or a
                snapshot that may still be committed, needs it.
        """
        log, job = job_snapshots.log, job_snapshots.job
        last, restored = log.last(), log.restored()
        needed = dict.fromkeys(bases(log, job_snapshots.files), "a snapshot that may still be committed needs it")
        if restored is not None and restored.commit is not None:
            needed[restored.commit.id] = "the current life began from it"
        if last is not None:
            needed[last.id] = "it is the last one, from which a recovery would begin"
        dropped = []
        for asked in snapshots:
            commit = job_snapshots.find(asked).commit
            if commit is None:
                raise ConfError(
                    f"snapshot {asked} is not committed, so there is nothing to drop",
                    where=f'job "{job}"',
                    way_out=f"lowtide snapshots prune {job} deletes it once it can no longer be committed",
                )
            if commit.id in needed:
                raise ConfError(
                    f"commit {asked} is needed: {needed[commit.id]}",
                    where=f'job "{job}"',
                    way_out=f"take another snapshot first: lowtide snapshot {job}",
                )
            dropped.append(commit)
        gone = {commit.id for commit in dropped}
        commits = log.commits()
        return cls(job_snapshots, [c for c in commits if c.id not in gone], [c for c in commits if c.id in gone])

    def carry_out(self) -> None:
        """Drop the commits, then delete everything that nothing needs."""
        self.swept = sweep(self.job_snapshots.log, self.job_snapshots.files, self.dropped)

    def look_at_sources(self, conf: Conf) -> None:
        """Ask Kafka whether each kept commit can still be begun from."""
        manifests = [manifest for commit in self.kept if (manifest := self._manifest(commit)) is not None]
        self.lost, self.unknown = unreachable(conf, manifests)

    def warnings(self) -> list[str]:
        """Return warnings for the person who prunes."""
        job = self.job_snapshots.job
        said = [
            f'job "{job}" can no longer begin from commit {id_}: the sources do not reach back to it: {"; ".join(what)}'
            for id_, what in self.lost.items()
        ]
        if self.unknown:
            said.append(f"cannot check whether the sources still reach back to the kept commits: {self.unknown}")
        for commit, why in self.swept.unreadable if self.swept is not None else ():
            said.append(f"no parts were deleted: commit {commit.id} is damaged and may need them: {why}")
        return said

    def said(self, *, dry_run: bool) -> str:
        """Return a sentence about what was done, or would be."""
        going = ", ".join(commit.id for commit in self.dropped)
        kept = f"{count_of(len(self.kept), 'commit')} kept"
        if self.swept is None:
            what = f"would drop {count_of(len(self.dropped), 'commit')}: {going}" if going else "would drop no commit"
            return f"{what}; {kept}" if dry_run else what
        swept = self.swept
        what = f"dropped {count_of(swept.commits, 'commit')}" + (f": {going}" if going else "")
        gone = (
            f"deleted {count_of(swept.manifests, 'manifest')} and {count_of(swept.parts, 'part')}, {size(swept.bytes)}"
        )
        return f"{what}; {gone}; {kept}"

    def as_object(self, *, dry_run: bool) -> dict[str, Any]:
        """Return the same as plain values."""
        swept = self.swept or Swept()
        return {
            "dry_run": dry_run,
            "kept": [commit.id for commit in self.kept],
            "dropped": [commit.id for commit in self.dropped],
            "manifests": swept.manifests,
            "parts": swept.parts,
            "bytes": swept.bytes,
            "sources_do_not_reach": self.lost,
            "sources_unknown": self.unknown,
            "damaged": {commit.id: why for commit, why in swept.unreadable},
        }

    def _manifest(self, commit: Commit) -> Manifest | None:
        try:
            return manifest_of(self.job_snapshots.log, self.job_snapshots.files, commit)
        except (ManifestDamaged, FormatTooNew):
            return None


def unreachable(conf: Conf, manifests: Iterable[Manifest]) -> tuple[dict[str, list[str]], str]:
    """Ask Kafka from which commits a job can no longer begin.

    Returns:
        By the snapshot's id what is gone, in words; and why it is not known, empty if it is.
    """
    kept = list(manifests)
    names = sorted({front.source for manifest in kept for front in manifest.fronts})
    try:
        topics = Topics(conf.kafka)
        there = set(topics.names())
        found = topics.describe_all([name for name in names if name in there])
        earliest = topics.earliest(found)
    except LowtideError as error:
        return {}, error.what
    lost = {manifest.id: gone(manifest, found, earliest) for manifest in kept}
    return {id_: what for id_, what in lost.items() if what}, ""


def gone(manifest: Manifest, topics: Sequence[Topic], earliest: Mapping[tuple[str, int], int]) -> list[str]:
    """Describe, for each front, what the sources no longer have.

    Args:
        manifest: Has the offsets.
        topics: Those that are there.
        earliest: By topic and partition the first offset that is there.
    """
    ids = {topic.name: topic.id for topic in topics}
    found = []
    for front in manifest.fronts:
        partition = f"{front.source}-{front.partition}"
        first = earliest.get((front.source, front.partition))
        if first is None or ids.get(front.source) != front.topic_id:
            found.append(f"{partition} is gone")
        elif first > front.offset:
            found.append(f"{partition} begins at offset {first}, but would be read from {front.offset}")
    return found

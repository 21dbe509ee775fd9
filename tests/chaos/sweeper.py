"""Sweeps a job's snapshots again and again, as `lowtide snapshots prune` does, and says what of them is damaged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lowtide.cli.prune_plan import PrunePlan
from lowtide.cli.snapshot_place import opened
from lowtide.conf import Conf
from lowtide.errors import LowtideError
from lowtide_snapshots.commits.choice import manifest_of
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.commits.verification import verify
from lowtide_snapshots.errors import CommitNeeded, ManifestDamaged

PAUSE_S = 0.05


@contextmanager
def swept(conf: Conf, job: str, keep: int) -> Iterator[list[LowtideError]]:
    """Sweep in a thread until the block ends, with no more than so many commits kept; gives what went wrong."""
    over, faults = threading.Event(), list[LowtideError]()

    def sweep() -> None:
        while not over.wait(PAUSE_S):
            try:
                with opened(conf, job) as (place, _):
                    while not over.wait(PAUSE_S):
                        PrunePlan.planned(place, Rule(keep)).carry_out()
            except CommitNeeded:
                continue  # It has become the one that a life begins from, or the last: as it should be.
            except LowtideError as error:
                faults.append(error)

    thread = threading.Thread(target=sweep, name="sweeper", daemon=True)
    thread.start()
    try:
        yield faults
    finally:
        over.set()
        thread.join()


def commits_of(conf: Conf, job: str) -> list[Commit]:
    """All commits, ascending."""
    with opened(conf, job) as (place, _):
        return place.log.commits()


def damages(conf: Conf, job: str) -> list[str]:
    """What of committed snapshots cannot be loaded, in words; empty if each is whole."""
    found: dict[str, str] = {}
    with opened(conf, job) as (place, _):
        for commit in place.log.commits():
            try:
                wrong = verify(place.files, manifest_of(place.log, place.files, commit), lambda *_: None)
                why = "; ".join(f"{each.part}: {each.why}" for each in wrong)
            except ManifestDamaged as error:
                why = str(error)
            if why:
                found[commit.id] = why
        # What was dropped meanwhile may go.
        return [f"commit {each.id}: {found[each.id]}" for each in place.log.commits() if each.id in found]

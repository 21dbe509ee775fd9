"""`lowtide snapshots`: the snapshots of a job, straight on store and ZooKeeper, whether the job runs or not."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import Age, bar, size, table, time_of
from lowtide.cli.prune_plan import PrunePlan
from lowtide.cli.snapshot_pages import LISTED, diff_object, diff_page, known_object, line, page
from lowtide.cli.snapshot_place import opened
from lowtide.conf import Conf
from lowtide.errors import SnapshotDamaged, SnapshotFailed
from lowtide.wording import count_of
from lowtide_snapshots.commits.known import KnownSnapshot, KnownSnapshots
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.commits.verification import verify as damages_of
from lowtide_snapshots.errors import CommitUnknown
from lowtide_snapshots.format.difference import diff as between
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.parts import sha256

UNKNOWN_LIMIT_S = 30.0
"""Time for which a commit whose outcome is unknown is looked up again."""
MOST_DAMAGES = 20


@click.group()
def snapshots() -> None:
    """List, show, verify, compare, commit, prune and drop the snapshots of a job.

    JOB is the name of the flow. The job need not run: the answers come from ZooKeeper and the store.
    """


@snapshots.command("list")
@click.argument("job")
@with_conf
@as_json
def list_snapshots(conf: Conf, job: str, as_json: bool) -> None:
    """List the snapshots of JOB, oldest first: committed ones, and those that are only sealed."""
    with opened(conf, job) as (job_snapshots, _):
        found, last, restored = job_snapshots.all(), job_snapshots.log.last(), job_snapshots.log.restored()
    if as_json:
        _say_json([known_object(known, last, restored) for known in found])
    elif found:
        click.echo(table(LISTED, [line(known, last, restored) for known in found]))
    else:
        click.echo(f'job "{job}" has no snapshots; take one: lowtide snapshot {job}')


@snapshots.command()
@click.argument("job")
@click.argument("snapshot", required=False)
@with_conf
@as_json
def show(conf: Conf, job: str, snapshot: str | None, as_json: bool) -> None:
    """Show the whole of SNAPSHOT, an id or a name; by default the last commit."""
    with opened(conf, job) as (job_snapshots, _):
        known = job_snapshots.find(snapshot)
        manifest = job_snapshots.read(known)
        last, restored, where = job_snapshots.log.last(), job_snapshots.log.restored(), job_snapshots.files.where
    if as_json:
        _say_json(known_object(known, last, restored) | {"content": json.loads(manifest.to_json())})
    else:
        click.echo(page(known, manifest, where))


@snapshots.command()
@click.argument("job")
@click.argument("snapshot", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Verify all of them.")
@with_conf
@as_json
def verify(conf: Conf, job: str, snapshot: tuple[str, ...], every: bool, as_json: bool) -> int:
    """Read all parts of each SNAPSHOT, ids or names, and check that they are whole; by default of the last commit.

    Exits with 6 if any snapshot is damaged.
    """
    if every and snapshot:
        raise click.UsageError("--all verifies them all; name none")
    with opened(conf, job) as (job_snapshots, _):
        asked = job_snapshots.all() if every else [job_snapshots.find(name) for name in snapshot or (None,)]
        found = [_verified(job_snapshots, known) for known in asked]
    if as_json:
        _say_json(found)
    else:
        for each in found:
            click.echo("\n".join(_verdict(each)))
    return 0 if all(each["whole"] for each in found) else SnapshotDamaged.exit_code


@snapshots.command()
@click.argument("job")
@click.argument("before")
@click.argument("after", required=False)
@with_conf
@as_json
def diff(conf: Conf, job: str, before: str, after: str | None, as_json: bool) -> None:
    """Show what lies between the snapshots BEFORE and AFTER, ids or names; by default up to the last commit."""
    with opened(conf, job) as (job_snapshots, _):
        pair = [job_snapshots.read(known) for known in (job_snapshots.find(before), job_snapshots.find(after))]
        found = between(*pair)
    if as_json:
        _say_json(diff_object(found))
    else:
        click.echo(diff_page(found, [manifest.record.slack_ms for manifest in pair]))


@snapshots.command()
@click.argument("job")
@click.argument("snapshot")
@with_conf
@as_json
def commit(conf: Conf, job: str, snapshot: str, as_json: bool) -> None:
    """Verify and commit SNAPSHOT, an id or a name: JOB then recovers from it.

    Use it for a snapshot taken with --no-commit. Exits with 6 if it is damaged, or can no longer be committed: a newer
    one is, or the job has begun another life since.
    """
    with opened(conf, job) as (job_snapshots, _):
        known = job_snapshots.find(snapshot)
        manifest = job_snapshots.read(known)
        done = known.commit
        if done is None:
            found = _verified(job_snapshots, known)
            if not found["whole"]:
                raise SnapshotDamaged("\n".join(_verdict(found)), way_out="take another snapshot")
            done = _commit(job_snapshots, manifest, known)
    if as_json:
        _say_json({"id": done.id, "name": done.name, "min_time_ms": done.min_time_ms, "committed": done.at})
    else:
        was = "was committed already" if known.commit is not None else "is committed"
        click.echo(f"snapshot {known.called} {was}, at {done.at}: all before {time_of(done.min_time_ms)} UTC")


@snapshots.command()
@click.argument("job")
@click.option("--keep", type=click.IntRange(min=1), help="How many to keep at most; by default [snapshots].keep.")
@click.option("--max-age", type=Age(), help="Drop older ones, as 30d or 12h; by default [snapshots].max_age_s.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@with_conf
@as_json
def prune(*, conf: Conf, job: str, keep: int | None, max_age: float | None, dry_run: bool, as_json: bool) -> None:
    """Drop old commits of JOB, and delete everything that no other commit needs.

    It always keeps the last commit, the one that the current life began from, and those with a name. It warns about
    kept commits that the source topics no longer reach back to.
    """
    rule = Rule(keep or conf.snapshots.keep, conf.snapshots.max_age_s if max_age is None else max_age)
    with opened(conf, job) as (job_snapshots, _):
        pruning = PrunePlan.planned(job_snapshots, rule)
        if not dry_run:
            pruning.carry_out()
        pruning.look_at_sources(conf)
    _say_pruning(pruning, dry_run=dry_run, as_json=as_json)


@snapshots.command()
@click.argument("job")
@click.argument("snapshot", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@with_conf
@as_json
def drop(*, conf: Conf, job: str, snapshot: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Drop the commits SNAPSHOT of JOB, ids or names, and delete everything that no other commit needs.

    Use it for commits with a name, which prune never drops. Exits with 2 if one is needed: the last one, or the one
    that the current life began from.
    """
    with opened(conf, job) as (job_snapshots, _):
        pruning = PrunePlan.of(job_snapshots, snapshot)
        if not dry_run:
            pruning.carry_out()
    _say_pruning(pruning, dry_run=dry_run, as_json=as_json)


def _say_pruning(pruning: PrunePlan, *, dry_run: bool, as_json: bool) -> None:
    for warning in pruning.warnings():
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        _say_json(pruning.as_object(dry_run=dry_run))
    else:
        click.echo(pruning.said(dry_run=dry_run))


def _verified(job_snapshots: KnownSnapshots, known: KnownSnapshot) -> dict[str, Any]:
    """Verify all parts of a snapshot and return the findings as plain values."""
    manifest = known.manifest
    found = {"id": known.id, "name": known.name, "min_time_ms": known.min_time_ms, "parts": 0, "bytes": 0}
    if manifest is None:
        return found | {"whole": False, "damages": [{"object": known.path, "why": known.why}]}
    with bar(f"verifying {known.id}") as progress:
        damages = damages_of(job_snapshots.files, manifest, progress)
    said = [{"object": each.part, "why": each.why} for each in damages]
    return found | {"parts": len(manifest.parts), "bytes": manifest.bytes, "whole": not damages, "damages": said}


def _verdict(found: dict[str, Any]) -> list[str]:
    """Return the same as lines of text."""
    called = found["id"] + (f' "{found["name"]}"' if found["name"] else "")
    if found["whole"]:
        return [f"snapshot {called} is whole: {count_of(found['parts'], 'part')}, {size(found['bytes'])}"]
    damages = found["damages"]
    of = f" of {count_of(found['parts'], 'part')}" if found["parts"] else ""
    lines = [f"  {each['object']}: {each['why']}" for each in damages[:MOST_DAMAGES]]
    more = [f"  and {len(damages) - MOST_DAMAGES} more"] if len(damages) > MOST_DAMAGES else []
    return [f"snapshot {called} is DAMAGED, {len(damages)}{of}:", *lines, *more]


def _commit(job_snapshots: KnownSnapshots, manifest: Manifest, known: KnownSnapshot) -> Commit:
    """Commit it; retry while the outcome is unknown (R16)."""
    if known.phase == "over":
        last, life = job_snapshots.log.last(), job_snapshots.log.incarnation()
        why = f"the last one is {last.id} at {time_of(last.min_time_ms)} UTC, and " if last is not None else ""
        raise SnapshotFailed(
            f"snapshot {known.called} can no longer be committed: {why}the job is in life {life}",
            where=f'job "{job_snapshots.job}"',
            way_out=f"take another one: lowtide snapshot {job_snapshots.job}",
        )
    digest = sha256(job_snapshots.files.get(known.path))
    deadline = time.monotonic() + UNKNOWN_LIMIT_S
    while True:
        try:
            return job_snapshots.log.commit(manifest, digest)
        except CommitUnknown:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _say_json(what: object) -> None:
    click.echo(json.dumps(what, indent=2))

"""Snapshots as people and programs read them: lines of a table, pages, and plain values for JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from lowtide.cli.output import size, table, time_of
from lowtide.wording import count_of
from lowtide_snapshots.commits.known import KnownSnapshot
from lowtide_snapshots.commits.log import Commit, Restored
from lowtide_snapshots.format.difference import Diff
from lowtide_snapshots.format.manifest import Manifest, Part, type_of

LISTED = ("snapshot", "name", "is", "all before (UTC)", "made (UTC)", "parts", "rows", "size", "")


def line(known: KnownSnapshot, last: Commit | None, restored: Restored | None) -> tuple[str, ...]:
    """Return a snapshot as a line of the list."""
    manifest = known.manifest
    sizes = (
        ("-", "-", "-")
        if manifest is None
        else (f"{len(manifest.parts):,}", f"{manifest.rows:,}", size(manifest.bytes))
    )
    made = known.commit.at if known.commit is not None else manifest.created if manifest is not None else ""
    shown = made[:23].replace("T", " ") or "-"
    remarks = []
    if known.why:
        remarks.append(f"DAMAGED: {known.why}")
    if _is(known, last):
        remarks.append("the last commit")
    if restored is not None and _is(known, restored.commit):
        remarks.append(f"life {restored.incarnation} began from it")
    return known.id, known.name or "", known.phase, time_of(known.min_time_ms), shown, *sizes, "; ".join(remarks)


def known_object(known: KnownSnapshot, last: Commit | None, restored: Restored | None) -> dict[str, Any]:
    """Return the same as plain values."""
    commit, manifest = known.commit, known.manifest
    return {
        "id": known.id,
        "name": known.name,
        "phase": known.phase,
        "last": _is(known, last),
        "restored_by": restored.incarnation if restored is not None and _is(known, restored.commit) else None,
        "min_time_ms": known.min_time_ms,
        "created": manifest.created if manifest is not None else None,
        "committed": commit.at if commit is not None else None,
        "base": manifest.base if manifest is not None else None,
        "parts": len(manifest.parts) if manifest is not None else None,
        "rows": manifest.rows if manifest is not None else None,
        "bytes": manifest.bytes if manifest is not None else None,
        "manifest": known.path,
        "damaged": known.why,
    }


def page(known: KnownSnapshot, manifest: Manifest, where: str) -> str:
    """Return all of one snapshot: what it holds by step, from where it is read on, what was delivered."""
    record = manifest.record
    facts = [
        ("snapshot", known.called),
        ("is", known.phase + (f" since {known.commit.at}" if known.commit is not None else "")),
        ("holds", f"all before {time_of(manifest.min_time_ms)} UTC (tick {manifest.tick} of {record.slack_ms} ms)"),
        ("made", f"{manifest.created}, in life {manifest.incarnation}, after {manifest.base or 'no other'}"),
        (
            "state",
            f"{count_of(manifest.rows, 'row')} in {count_of(len(manifest.parts), 'part')}, {size(manifest.bytes)}",
        ),
        ("manifest", f"{where}, {known.path}"),
        ("record", f"{record.units} hash units, {record.lanes} lanes, {', '.join(record.sources)}"),
        ("floors", f"{len(manifest.floors):,}"),
    ]
    width = max(len(name) for name, _ in facts)
    blocks = ["\n".join(f"{name:{width}}  {what}" for name, what in facts)]
    steps = _steps(manifest)
    if steps:
        blocks.append(table(("step", "keeps", "key", "state", "parts", "rows", "size", "of older snapshots"), steps))
    fronts = [
        (str(f.number), f"{f.source}-{f.partition}", f"{f.offset:,}", _label(f.label, record.slack_ms))
        for f in manifest.fronts
    ]
    if fronts:
        blocks.append(table(("front", "partition", "is read from offset", "largest time before (UTC)"), fronts))
    lanes = [
        (each.sink or "dead letters", str(each.level), str(each.lane), _last(each.last, record.slack_ms))
        for each in manifest.lasts
    ]
    if lanes:
        blocks.append(table(("sink", "level", "lane", "had delivered up to (UTC)"), lanes))
    return "\n\n".join(blocks)


def diff_page(found: Diff, slack_ms: Sequence[int]) -> str:
    """Return what lies between two snapshots; `slack_ms` of each."""
    times = [time_of(tick * slack) for tick, slack in zip(found.ticks, slack_ms, strict=True)]
    head = "\n".join(f"{id_}  all before {at} UTC" for id_, at in zip(found.ids, times, strict=True))
    fronts = [
        (str(f.number), f"{f.source}-{f.partition}", _number(f.before), _number(f.after), _number(f.records))
        for f in found.fronts
    ]
    steps = [
        (
            each.vertex,
            f"{each.rows_before:,}",
            f"{each.rows_after:,}",
            size(each.bytes_before),
            size(each.bytes_after),
            f"{each.changed:,}",
        )
        for each in found.vertices
    ]
    blocks = [head, table(("front", "partition", "offset", "then", "records between"), fronts)]
    blocks.append(table(("step", "rows", "then", "size", "then", "units changed"), steps))
    if found.shape:
        blocks.append("\n".join(f"the flow has changed: {each.what}" for each in found.shape))
    return "\n\n".join(blocks)


def diff_object(found: Diff) -> dict[str, Any]:
    """Return the same as plain values."""
    return {
        "ids": found.ids,
        "ticks": found.ticks,
        "fronts": [
            {
                "number": each.number,
                "source": each.source,
                "partition": each.partition,
                "before": each.before,
                "after": each.after,
                "records": each.records,
            }
            for each in found.fronts
        ],
        "steps": [{name: getattr(each, name) for name in each.__dataclass_fields__} for each in found.vertices],
        "shape": [{"step": each.vertex, "what": each.what, "fatal": each.fatal} for each in found.shape],
    }


def _is(known: KnownSnapshot, commit: Commit | None) -> bool:
    return commit is not None and known.commit is not None and commit.id == known.id


def _steps(manifest: Manifest) -> list[tuple[str, ...]]:
    parts: dict[str, list[Part]] = defaultdict(list)
    for part in manifest.parts:
        parts[part.vertex].append(part)
    rows: list[tuple[str, ...]] = []
    for shape in manifest.flow:
        mine = parts[shape.vertex]
        key = ", ".join(f"{name} {kind}" for name, kind in shape.key) or "-"
        total = sum(part.rows for part in mine), sum(part.bytes for part in mine)
        older = sum(part.snapshot != manifest.id for part in mine)
        sizes = (f"{len(mine):,}", f"{total[0]:,}", size(total[1]), f"{older:,}")
        rows.append((shape.vertex, shape.kind, key, str(type_of(shape)), *sizes))
    return rows


def _label(tick: int | None, slack_ms: int) -> str:
    return "-" if tick is None else time_of(tick * slack_ms)


def _last(text: str | None, slack_ms: int) -> str:
    """The time of the last record of a lane; the text itself where it is of another kind."""
    if text is None:
        return "-"
    try:
        return time_of(int(json.loads(text)[0]) * slack_ms)
    except (ValueError, TypeError, IndexError, KeyError):
        return text


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"

"""All that is known of one running job, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowtide.cli.job_page import page_address
from lowtide.cli.output import time_of
from lowtide.jobs.figures import REMARKABLE_LAG_MS, count, duration, lag, latency
from lowtide.status.job_view import (
    CallView,
    FrontView,
    JobView,
    KeptGauges,
    LateGauges,
    LetterGauges,
    SegmentView,
    SinkView,
    StagedView,
    TrackerView,
    WorkerView,
)
from lowtide.wording import count_of

PIPE_WIDTH = 200
"""Columns where the output is not a terminal: programs that read it need whole lines."""
SHOWN_EVENTS = 8
QUIET_S = 60.0
"""After so long without a record a partition is called quiet."""
COLOURS = {"running": "green", "starting": "yellow", "stopping": "yellow", "ended": "red"}


def show(view: JobView, file: TextIO | None = None) -> None:
    """Print the page; without colours, and in lines of `PIPE_WIDTH`, where it is not a terminal."""
    console = Console(file=file, markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        console.print(status_page(view))
        return
    console.width = PIPE_WIDTH
    with console.capture() as page:
        console.print(status_page(view))
    for line in page.get().splitlines():
        print(line.rstrip(), file=console.file)


def status_page(view: JobView) -> RenderableType:
    """Return the page: how it goes, then segments, fronts, workers, sinks and the last events."""
    parts: list[RenderableType] = [_title(view), "", _summary(view)]
    if view.segments:
        columns: Sequence[str] = ("segment", "steps", "min time (UTC)", "lag", "acks", "held by")
        parts += ["", _table(columns, map(_segment, view.segments), right=(0, 3, 4))]
    if view.fronts:
        columns = ("front", "partition", "worker", "heartbeat (UTC)", "lag", "next offset", "parked", "")
        parts += ["", _table(columns, map(_front, view.fronts), right=(0, 4, 5, 6))]
    if view.workers:
        columns = ("worker", "executor", "pid", "address", "in", "out", "delivered", "waiting", "tracker messages", "")
        parts += ["", _table(columns, map(_worker, view.workers), right=(2, 4, 5, 6, 7, 8))]
    if view.sinks:
        columns = (
            "sink",
            "lanes",
            "delivery",
            "delivered",
            "bytes",
            "newest record (UTC)",
            "dry for",
            "waiting",
            "transactions",
        )
        parts += ["", _table(columns, map(_sink, view.sinks), right=(1, 3, 4, 6, 7, 8))]
    staged = [(sink.sink, sink.staged) for sink in view.sinks if sink.staged is not None]
    if staged:
        columns = ("staged sink", "visible (UTC)", "lag", "records behind", "bytes", "carrier", "restarts")
        parts += ["", _table(columns, [_staged(*each) for each in staged], right=(2, 3, 4, 5, 6))]
    if view.calls:
        columns = ("call", "open", "oldest", "waiting", "answers/s", "took, p50/p99", "retries", "failed", "reused")
        parts += ["", _table(columns, [_call(*each) for each in view.calls.items()], right=(1, 2, 3, 4, 6, 7, 8))]
    if view.kept:
        columns = ("step", "keeps", "", "bytes, about")
        parts += ["", _table(columns, [_kept(*each) for each in view.kept.items()], right=(1, 3))]
    if view.events:
        parts += ["", *(Text(_event(event)) for event in view.events[-SHOWN_EVENTS:])]
    return Group(*parts)


def _title(view: JobView) -> Text:
    since = f" since {time_of(view.started_ms)} UTC" if view.started_ms is not None else ""
    title = Text.assemble((view.job, "bold"), "  ", (view.phase, COLOURS.get(view.phase, "")))
    page = page_address(view.control) if view.control else "-"
    title.append(f"  incarnation {view.incarnation}{since}  page and control API at {page}")
    return title


def _summary(view: JobView) -> Table:
    rates, totals, tracker = view.rates, view.totals, view.tracker
    summary = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    late = "yellow" if (view.lag_ms or 0) >= REMARKABLE_LAG_MS else ""
    held = "" if view.held_s is None else f" for {duration(view.held_s * 1000)}"
    durable = (
        "nothing for sure yet" if view.delivered_time_ms is None else f"all before {time_of(view.delivered_time_ms)}"
    )
    letters = count_of(totals.dead_letters, "dead letter")
    rows: list[tuple[str, str | Text]] = [
        ("rate", f"{count(rates.records_in)} records/s in, {count(rates.delivered)} records/s delivered"),
        ("lag", Text(lag(view), late)),
        ("min time", f"{time_of(view.min_time_ms)}{held}, held by {view.holder or '-'}"),
        *(("to do", line.replace("`", "")) for line in view.to_do if _stands(view)),
        ("delivered", durable),
        ("latency", f"{latency(view.latency_ms)} (from a record's timestamp until it is durable)"),
        ("hops, p50/p99", ", ".join(f"{hop} {duration(p.p50)}/{duration(p.p99)}" for hop, p in view.hops.items())),
        *(("dead letters", f"{step}: {_letters(dead)}") for step, dead in view.letters.items()),
        ("in total", f"{totals.records_in:,} in, {totals.delivered:,} delivered, {letters}"),
        ("repairs", f"{totals.repairs:,}"),
        ("snapshots", _snapshots(view)),
        ("tracker", f"era {tracker.era}, process {tracker.pid or '-'}, {count_of(tracker.floors, 'floor')}"),
        ("its traffic", _traffic(tracker)),
    ]
    if tracker.shards:
        shards = [f"{each.shard}: {each.trouble or f'era {each.era}, process {each.pid}'}" for each in tracker.shards]
        colour = "red" if any(each.trouble for each in tracker.shards) else ""
        rows.append(("shards", Text("; ".join(shards), colour)))
    if view.protocols:
        found = (f"{store} {' and '.join(versions)}" for store, versions in view.protocols.items())
        rows.append(("transactions", ", ".join(found)))
    if view.standbys:
        waiting = [f"{each.holder}, {'ready' if each.ready else 'starting'} ({each.since})" for each in view.standbys]
        rows.append(("standbys", "; ".join(waiting)))
    if view.chain:
        rows.append(("jobs", "; ".join(view.chain)))
    if totals.late:
        rows.append(("late", "; ".join(_late(step, seen) for step, seen in totals.late.items())))
    if view.cause:
        rows.insert(0, ("ended", Text(str(view.cause), "red")))
    rows = [*_troubles(view), *rows]
    for name, content in rows:
        summary.add_row(Text(name, "dim"), content or "-")
    return summary


def _troubles(view: JobView) -> list[tuple[str, str | Text]]:
    """Return the troubles, each with what to do: those with a name first."""
    rows: list[tuple[str, str | Text]] = []
    for found in view.found:
        rows.append(("trouble", Text(_one_line(found.says), "red")))
        rows += [("to do", line.replace("`", "")) for line in found.to_do]
    named = {found.says for found in view.found}
    rows += [("trouble", Text(_one_line(trouble), "red")) for trouble in view.troubles if trouble not in named]
    return rows


def _one_line(text: str) -> str:
    """Return a text of several lines in one: the place and what to do follow what has happened."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _stands(view: JobView) -> bool:
    """True if min time is behind and does not move."""
    return min(view.lag_ms or 0, (view.held_s or 0) * 1000) >= REMARKABLE_LAG_MS


def _traffic(tracker: TrackerView) -> str:
    traffic = tracker.traffic
    each = tracker.messages_per_record
    per_record = "" if each is None else f"; {each:.3g} messages a record"
    return (
        f"{traffic.messages_in:,} messages in, {traffic.messages_out:,} out, {traffic.bytes_in:,} bytes in, "
        f"{traffic.bytes_out:,} out; {traffic.flushes:,} flushes with {traffic.acks:,} acks{per_record}"
    )


def _snapshots(view: JobView) -> str:
    snapshots = view.snapshots
    if not snapshots.last:
        last = "none is committed yet"
    else:
        age = "" if snapshots.committed_s is None else f", {duration(snapshots.committed_s * 1000)} ago"
        last = f"{snapshots.last} at {time_of(snapshots.last_ms)}{age}"
    now = f"; {snapshots.taking} is being taken" if snapshots.taking else ""
    failed = f"; {snapshots.counts['failed']} failed" if snapshots.counts.get("failed") else ""
    return last + now + failed


def _segment(segment: SegmentView) -> Sequence[object]:
    times = time_of(segment.min_time_ms), duration(segment.lag_ms)
    return segment.segment, segment.name, *times, f"{segment.acks:,}", segment.waits_for or segment.holder or "-"


def _sink(sink: SinkView) -> Sequence[object]:
    newest = "none yet" if not sink.delivered else time_of(sink.newest_ms)
    delivered = f"{sink.delivered:,}", f"{sink.bytes:,}", newest, duration(sink.lag_ms)
    return sink.sink, sink.lanes, sink.delivery, *delivered, f"{sink.waiting:,}", count(sink.transactions)


def _staged(sink: str, staged: StagedView) -> Sequence[object]:
    times = time_of(staged.visible_time_ms), duration(staged.lag_ms)
    return sink, *times, f"{staged.records:,}", f"{staged.bytes:,}", staged.pid or "-", staged.restarts


def _call(step: str, calls: CallView) -> Sequence[object]:
    took = f"{duration(calls.took_ms.p50)}/{duration(calls.took_ms.p99)}"
    oldest = duration(calls.oldest_s * 1000) if calls.open else "-"
    counts = (f"{each:,}" for each in (calls.retries, calls.failures, calls.reused))
    return step, f"{calls.open:,}", oldest, f"{calls.waiting:,}", count(calls.per_s), took, *counts


def _kept(step: str, kept: KeptGauges) -> Sequence[object]:
    return step, f"{kept.count:,}", kept.what, f"{kept.bytes:,}"


def _letters(dead: LetterGauges) -> str:
    return f"{dead.records:,}, the last at {dead.at}: {dead.why}"


def _late(step: str, seen: LateGauges) -> str:
    if not seen.late:
        return f"none for {step}"
    behind = f", by {duration(seen.most_ms)} at most" if seen.closed else ""
    ahead = f", {seen.ahead:,} ahead of their time" if seen.ahead else ""
    return f"{seen.late:,} for {step} ({seen.share:.2%} of {seen.records:,}{behind}{ahead})"


def _front(front: FrontView) -> Sequence[object]:
    quiet_s = front.quiet_s or 0.0
    remark = f"no record for {duration(quiet_s * 1000)}" if quiet_s >= QUIET_S else ""
    if not front.pulling:
        remark = "stopped: it is ahead of the others"
    worker = front.worker or "none yet: idle"
    offset = "-" if front.next_offset is None else front.next_offset
    times = time_of(front.heartbeat_ms), duration(front.lag_ms)
    return front.front, front.partition, worker, *times, offset, f"{front.parked:,}", remark


def _worker(worker: WorkerView) -> Sequence[object]:
    numbers = [count(worker.gauges.get(name)) for name in ("records_in", "records_out", "delivered", "waiting")]
    remark = "" if worker.attached else "no task attached"
    traffic = worker.gauges.get("line", {}).get("traffic")  # Of its process, reported by one of the workers in it.
    messages = f"{traffic['messages_in'] + traffic['messages_out']:,}" if traffic else ""
    return worker.worker, worker.executor, worker.pid or "-", worker.address or "-", *numbers, messages, remark


def _event(event: dict[str, object]) -> str:
    fields = {
        key: value
        for key, value in event.items()
        if key not in ("ts", "job", "incarnation", "event") and value is not None
    }
    said = ", ".join(f"{_named(key)} {_value(key, value)}" for key, value in fields.items())
    return f"{event.get('ts', '-')}  {event.get('event', '-')}  {said}".rstrip()


def _named(key: str) -> str:
    return key.removesuffix("_ms").replace("_", " ") if key.endswith("time_ms") else key.replace("_", " ")


def _value(key: str, value: object) -> str:
    """Write a field of an event in one line: moments as times, lists without Python's brackets."""
    if key.endswith("time_ms") and isinstance(value, int):
        return time_of(value)
    if isinstance(value, list | tuple):
        return " and ".join(map(str, value))
    return str(value).partition("\n")[0]


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    return table

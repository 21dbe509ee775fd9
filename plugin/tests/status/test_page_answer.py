"""The page's answer about a running job: states, causes, and which snapshots there are."""

from __future__ import annotations

import io

import msgspec
import pytest
from kept_snapshots import record
from seen import SHAPE, moment

from lowtide.events import EventLog
from lowtide.status.history import COARSE_KEPT, FINE_KEPT, MARKS_KEPT, History
from lowtide.status.job_view import JobView, SnapshotView
from lowtide.status.job_watch import JobWatch
from lowtide.status.page import IN_VAIN, NEXT_LIFE, job_answer, jobs_answer, snapshot_lines
from lowtide_snapshots.cause import Cause, Kind
from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.page.answers import LIVE, JobAnswer

NOW_MS = 1_800_000_000_000
TAKING = SnapshotView(
    id="000003-0007", name="now", phase="taking", min_time_ms=None, parts=8, parts_done=3, rows=5, bytes=6,
    began="2027-01-15T08:00:00.000Z", took_s=2.5, waits_for=["1/0: its parts"],
)  # fmt: skip


def answer(phase: str = "running", cause: Cause | None = None) -> JobAnswer:
    watch = JobWatch(SHAPE, EventLog("index", 3, io.StringIO()))
    view = watch.look(0.0, moment(5, phase=phase, cause=cause))
    return job_answer(view, watch.history.view(), [], [], now_ms=NOW_MS)


def commit(tick: int, id_: str) -> Commit:
    path = f"index/manifests/{10 * tick:015d}-{id_}.json"
    return Commit(tick, id_, None, path, "0" * 64, 2, "2027-01-15T07:00:00.000Z")


@pytest.mark.parametrize(
    ("phase", "state"),
    [("starting", "starting"), ("running", "running"), ("stopping", "stopping"), ("ended", "failed")],
)
def test_a_phase_is_one_of_the_page_s_states(phase: str, state: str) -> None:
    reported = answer(phase)
    assert (reported.state, reported.why, reported.to_do, reported.asked_ms) == (state, "", [], NOW_MS)
    assert reported.live is not None
    assert tuple(reported.live) == LIVE
    view = JobView(job="index", incarnation=3, phase=phase)
    (line,) = jobs_answer(view, NOW_MS).jobs
    assert (line.job, line.state) == ("index", state)


@pytest.mark.parametrize(("kind", "then"), [("flow", IN_VAIN), ("loss", NEXT_LIFE), ("other", NEXT_LIFE)])
def test_an_end_has_its_cause_and_what_follows(kind: Kind, then: str) -> None:
    reported = answer("ended", Cause(kind, "it broke", "here", "mend it"))
    assert reported.why == "it broke\n  where: here"
    assert reported.to_do == ["Mend it.", then]
    assert answer("ended", Cause(kind, "it broke")).to_do == [then]


def test_snapshots_are_the_commits_and_what_this_life_has_not_committed() -> None:
    known = [commit(100, "000002-0001"), commit(200, "000003-0001")]
    sealed = msgspec.structs.replace(TAKING, id="000003-0002", phase="sealed", min_time_ms=3000)
    failed = msgspec.structs.replace(TAKING, id="000003-0003", phase="failed", why=Cause("other", "no room"))
    committed = msgspec.structs.replace(TAKING, id="000003-0001", phase="committed")
    lines = snapshot_lines(known, lambda _: None, [committed, sealed, failed, TAKING])
    assert [(line.id, line.phase, line.last, line.incarnation) for line in lines] == [
        ("000002-0001", "committed", False, 2),
        ("000003-0001", "committed", True, 2),
        ("000003-0002", "sealed", False, 3),
        ("000003-0003", "failed", False, 3),
        ("000003-0007", "taking", False, 3),
    ]
    assert [line.min_time_ms for line in lines] == [1000, 2000, 3000, None, None]
    assert (lines[3].why, lines[2].at_ms, lines[4].at_ms) == ("no room", 1_800_000_002_500, None)
    assert lines[0].rows is None


def test_what_the_life_knows_of_a_commit_gives_its_size() -> None:
    stateless = Manifest(
        job="index", id="000003-0001", name=None, tick=200, created="2027-01-15T07:00:00.000Z", base=None,
        incarnation=3, record=record("index"), flow=(), fronts=(), floors=(), lasts=(), parts=(),
    )  # fmt: skip
    (line,) = snapshot_lines([commit(200, "000003-0001")], {200: stateless}.get, [])
    assert (line.parts, line.rows, line.bytes) == (0, 0, 0)


def test_a_full_history_is_bounded_in_bytes() -> None:
    """A page that is opened late gets it in one answer."""
    history = History()
    watch = JobWatch(SHAPE, EventLog("index", 3, io.StringIO()), history)
    view = watch.look(0.0, moment(123_456))
    for second in range(COARSE_KEPT * 15 + FINE_KEPT):
        event = {"ts": "2027-01-15T08:00:00.000Z", "event": "stalled", "holder": "x" * 150, "number": second}
        history.look(
            msgspec.structs.replace(
                view,
                seen_ms=NOW_MS + 1000 * second,
                holder=f"front {second % 3} (documents-{second % 3})",
                events=[event],
            )
        )
    reported = history.view()
    assert reported is not None
    assert (len(reported.fine), len(reported.coarse), len(reported.marks)) == (FINE_KEPT, COARSE_KEPT, MARKS_KEPT)
    assert len(msgspec.json.encode(reported)) < 250_000

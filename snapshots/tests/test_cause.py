"""A cause: kept as values, made text only for people."""

import json
from dataclasses import asdict

import pytest

from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import Fenced, SnapshotsError, cause_of

RAISED = Cause("flow", "it raised", "flow.py:3", "correct it", "Traceback …\n")


def test_a_cause_prints_as_an_error_does() -> None:
    assert str(RAISED) == "it raised\n  where: flow.py:3\n  what to do: correct it\n\nTraceback …"
    assert RAISED.story == "it raised\n  where: flow.py:3"
    assert str(Cause("loss", "it is gone")) == "it is gone"
    error = SnapshotsError("it raised", where="flow.py:3", way_out="correct it", details="Traceback …\n")
    assert str(error) == str(RAISED)


def test_a_prefix_leaves_all_but_what_happened_as_it_was() -> None:
    assert RAISED.prefixed("worker 1/0: ") == Cause(
        "flow", "worker 1/0: it raised", "flow.py:3", "correct it", "Traceback …\n"
    )


def test_a_cause_that_was_kept_is_read_as_it_was() -> None:
    assert Cause.of(json.loads(json.dumps(asdict(RAISED)))) == RAISED


@pytest.mark.parametrize(
    ("kept", "cause"),
    [
        (None, None),
        ("", None),
        ("it raised\n  what to do: correct it", Cause("other", "it raised\n  what to do: correct it")),
        ({"kind": "flood", "what": "it is wet", "since": 3}, Cause("other", "it is wet")),
        ({"kind": "loss", "what": "it is gone"}, Cause("loss", "it is gone")),
    ],
)
def test_what_other_versions_kept_is_read(kept: object, cause: Cause | None) -> None:
    assert Cause.of(kept) == cause


def test_every_error_gives_a_cause() -> None:
    assert cause_of(Fenced("another life runs", way_out="leave it")) == Cause(
        "loss", "another life runs", way_out="leave it"
    )
    assert cause_of(OSError("the disk is full")) == Cause("other", "OSError: the disk is full")
    assert cause_of(RuntimeError(), "Traceback") == Cause("other", "RuntimeError", details="Traceback")

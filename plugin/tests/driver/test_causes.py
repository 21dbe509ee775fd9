"""The error in which a driver program meets the cause of a life's end."""

import msgspec
import pytest

from lowtide.driver.causes import error_of
from lowtide.errors import InterpreterMismatch, LifeEnded, LowtideError
from lowtide_snapshots.cause import Cause


@pytest.mark.parametrize(
    ("kind", "error", "code"),
    [
        ("flow", LifeEnded, 5),
        ("loss", LifeEnded, 5),
        ("other", LifeEnded, 5),
        ("interpreter", InterpreterMismatch, 4),
    ],
)
def test_a_cause_that_the_plugin_tells_is_an_error_of_its_kind(kind: str, error: type[LowtideError], code: int) -> None:
    reported = {"kind": kind, "what": "it ended", "where": "here", "way_out": "mend it", "details": "Traceback"}
    made = error_of(msgspec.json.encode(reported).decode())
    assert (type(made), made.exit_code, made.kind) == (error, code, kind)
    assert made.cause() == msgspec.convert(reported, Cause)


def test_what_java_leaves_out_is_empty() -> None:
    made = error_of('{"kind":"loss","what":"Lowtide\'s service died"}')
    assert str(made) == "Lowtide's service died"

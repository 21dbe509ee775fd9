"""Events: one line of JSON each."""

import io
import json
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest

from lowtide.events import EVENTS, KEPT, MAX_TEXT_CHARS, EventLog

AT = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)


def test_an_event_is_one_line_of_json() -> None:
    stream = io.StringIO()
    events = EventLog("index", 3, stream, lambda: AT)
    events.event("worker_lost", worker="1/0", how="killed\nby SIGKILL", at=AT, file=Path("a"))
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    logged = {
        "ts": "2026-01-02T03:04:05.678Z", "job": "index", "incarnation": 3, "event": "worker_lost",
        "worker": "1/0", "how": "killed\nby SIGKILL", "at": "2026-01-02T03:04:05.678900Z", "file": "a",
    }  # fmt: skip
    assert json.loads(text) == logged
    assert events.last == [logged]
    assert list(json.loads(text))[:4] == ["ts", "job", "incarnation", "event"]


def test_the_last_events_are_kept_and_long_texts_cut() -> None:
    events = EventLog("index", 3, io.StringIO())
    for number in range(KEPT + 5):
        events.event("stalled", number=number, text="x" * (2 * MAX_TEXT_CHARS))
    assert [event["number"] for event in events.last] == list(range(5, KEPT + 5))
    assert len(events.last[0]["text"]) == MAX_TEXT_CHARS + 1


def test_an_event_has_a_name_that_is_known_and_fields_of_its_own() -> None:
    events = EventLog("index", 3, io.StringIO())
    with pytest.raises(AssertionError, match="is not an event"):
        events.event("worker_died")  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="taken"):
        events.event("stalled", job="other")


def test_every_event_is_in_the_manual() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
    assert [name for name in EVENTS if f"| `{name}` |" not in manual] == []


def test_lines_of_threads_do_not_mix(capfd: pytest.CaptureFixture[str]) -> None:
    events = EventLog("index", 3)

    def happen() -> None:
        for number in range(50):
            events.event("resumed", number=number)

    threads = [Thread(target=happen) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 400
    assert {json.loads(line)["event"] for line in lines} == {"resumed"}


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    full = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 - closing it fails as well
    events = EventLog("index", 3, full)
    events.event("life_begun")
    assert len(events.last) == 1
    with suppress(OSError):
        full.close()


def test_lowtide_is_imported_without_what_serves_the_control_api() -> None:
    code = (
        "import sys, lowtide, lowtide.status.control_client; print([m for m in sys.modules if m.split('.')[0] in {}])"
    )
    heavy = "('aiohttp', 'prometheus_client', 'rich', 'numpy', 'pyspark')"
    done = subprocess.run([sys.executable, "-c", code.format(heavy)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Traces: which records are sampled, the spans they leave, and that nothing of it touches the job."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from core_rig import notice, plan, read
from hanging import HANGS_S
from stage_rig import Kept, Rig, Served, deployment, orders, packed

from lowtide.assignment.deployment import TracesSetting
from lowtide.conf import Conf
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.order.order import SIGN_32, SIGN_64
from lowtide.core.worker import WorkerCore
from lowtide.doctor.check import Answer, Check, Surroundings, ask
from lowtide.doctor.traces import traces
from lowtide.driver.traces import traces_of
from lowtide.errors import ConfError
from lowtide.worker import exporting as exporting_module
from lowtide.worker.exporting import Exporting, Span
from lowtide.worker.traces import Sampling, Traces
from lowtide_tracker import LocalTracker

pytest.importorskip("opentelemetry.sdk.trace", reason="lowtide[traces] is not installed")

from otlp_receiver import Receiver, whole


def position(front: int, offset: int) -> bytes:
    return (front + SIGN_32).to_bytes(4, "big") + (offset + SIGN_64).to_bytes(8, "big")


def test_a_record_is_sampled_by_its_position_alone() -> None:
    sampled = {n for n in range(20_000) if Sampling("job 1", 0.1).trace_of(position(0, n)) is not None}
    assert 1_800 < len(sampled) < 2_200
    again = Sampling("job 1", 0.1)
    assert sampled == {n for n in range(20_000) if again.trace_of(position(0, n)) is not None}
    fewer = {n for n in range(20_000) if Sampling("job 1", 0.01).trace_of(position(0, n)) is not None}
    assert fewer < sampled, "a smaller ratio has some of the same records"
    assert sampled != {n for n in range(20_000) if Sampling("job 2", 0.1).trace_of(position(0, n)) is not None}


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_none_and_all_are_ratios_too(ratio: float) -> None:
    traced = [Sampling("job", ratio).trace_of(position(1, n)) is not None for n in range(1000)]
    assert traced == [bool(ratio)] * 1000


class Flown:
    """Three levels of one worker each, watched, and the spans they leave."""

    def __init__(self, grouping: str, ratio: float = 1.0) -> None:
        self.spans: list[Span] = []
        self.time_ns = 10**15
        self.traces = []
        self.cores = []
        for level in range(3):
            name = f"{level}/0"
            traces = Traces(plan(), name, level, 7, Sampling("test", ratio), self.spans.append, self.tick)
            front = Front(0, FrontLimits(1, Window(1000, 10**6), 10**6), KnownFloors(0)) if level == 0 else None
            tracker = LocalTracker(level, 1, start=0)
            self.cores.append(
                WorkerCore(plan(), level, 0, tracker=tracker, front=front, grouping=grouping, watcher=traces)
            )
            self.traces.append(traces)

    def tick(self) -> int:
        self.time_ns += 1000
        return self.time_ns

    def pass_on(self, level: int, effects: Any) -> None:
        for frame in effects.frames:
            self.traces[level + 1].came([frame], self.tick())
            self.pass_on(level + 1, self.cores[level + 1].frame(frame))
        for sink, bundle in effects.bundles:
            self.cores[level].durable(sink, bundle.lane)

    def notice(self, number: int, *min_times: int) -> None:
        for level, core in enumerate(self.cores):
            self.pass_on(level, core.notice(notice(number, *min_times)))


@pytest.mark.parametrize("grouping", ["ordered", "optimistic"])
def test_a_record_leaves_a_span_at_each_stage(grouping: str) -> None:
    flown = Flown(grouping)
    flown.pass_on(0, read(flown.cores[0], [(5, 1), (7, 2)]))
    for number, ticks in enumerate([(6, 5), (6, 6), (8, 6), (8, 8)], 1):
        flown.notice(number, *ticks)
    by_trace: dict[int, list[Span]] = {}
    for span in flown.spans:
        by_trace.setdefault(span.trace, []).append(span)
    assert len(by_trace) == 2
    for spans in by_trace.values():
        first = sorted(spans, key=lambda span: span.start_ns)
        assert [span.name for span in first] == ["source", "level 0", "level 1", "level 2", "wait", "deliver"]
        assert len({span.id for span in spans}) == len(spans)
        assert all(span.start_ns <= span.end_ns for span in spans)
    assert not any(traces._here or traces._delivering for traces in flown.traces), "nothing is kept of what is gone"


def test_a_level_lasts_until_a_held_record_is_out() -> None:
    flown = Flown("ordered")
    flown.pass_on(0, read(flown.cores[0], [(5, 1)]))
    held_from = flown.time_ns
    flown.notice(1, 6, 5)
    flown.notice(2, 6, 6)
    (level,) = [span for span in flown.spans if span.name == "level 1"]
    assert level.start_ns < held_from < level.end_ns
    assert dict(level.events)["taken"] <= held_from
    assert level.attributes["lowtide.records.in"] == level.attributes["lowtide.records.out"] == 1


def test_what_fails_is_delivered_to_the_dead_letters() -> None:
    flown = Flown("optimistic")
    flown.pass_on(0, read(flown.cores[0], [(5, -1)]))
    flown.notice(1, 6, 6)
    flown.notice(2, 7, 7)
    (deliver,) = [span for span in flown.spans if span.name == "deliver"]
    assert deliver.attributes["lowtide.step"] == "dead letters"
    assert deliver.attributes["messaging.destination.name"] == "dead"


def test_a_record_that_is_not_sampled_leaves_nothing() -> None:
    flown = Flown("optimistic", 0.0)
    flown.pass_on(0, read(flown.cores[0], [(5, 1)]))
    flown.notice(1, 6, 6)
    assert flown.spans == []


# -- in hosts, to a collector ------------------------------------------------------------------------------------------


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)
    monkeypatch.setattr(exporting_module, "EVERY_S", 0.05)
    with Served() as served:
        yield served
        assert served.faults == []


class Timed(Rig):
    """Frames come when they come."""

    def route(self, emitted: Iterable[tuple[str, Iterable[tuple[int, bytes]]]]) -> None:
        for name, frames in emitted:
            for target, frame in frames:
                to = self.stages[f"{int(name[0]) + 1}/{target}"]
                self.route([(to.name, to.frames([frame], time.time_ns())), *to.host.handed()])


def run(tracker: Served, setting: TracesSetting) -> list[Any]:
    """Deliver some orders, and return what was delivered, by number."""
    rig = Timed.of(replace(deployment(), traces=setting), tracker.address, hosts=2)
    rig.read(packed(orders(200)))
    rig.grant(10)
    rig.until(lambda: len(rig.delivered) == 200)
    watching = [stage.traces for stage in rig.stages.values() if stage.traces is not None]
    rig.until(lambda: not any(traces._here or traces._delivering for traces in watching))
    for host in rig.hosts:
        host.close(1.0)
    return sorted(rig.delivered, key=lambda order: order["number"])


def test_a_collector_gets_whole_traces_of_exactly_the_sampled_records(tracker: Served) -> None:
    with Receiver() as receiver:
        assert run(tracker, TracesSetting(f"{receiver.endpoint}/v1/traces", 0.3)) == orders(200)
    sampling = Sampling("stage ", 0.3)
    wanted = {trace: n for n in range(200) if (trace := sampling.trace_of(position(1, n))) is not None}
    assert {span.trace for span in receiver.spans} == set(wanted)
    for trace, offset in wanted.items():
        spans = [span for span in receiver.spans if span.trace == trace]
        assert whole(spans, levels=2), spans
        (source,) = [span for span in spans if span.name == "source"]
        assert source.service == "stage"
        assert source.of["messaging.kafka.offset"] == offset
        assert source.of["messaging.destination.partition.id"] == "1"
        assert all(span.of["lowtide.life"] == 3 for span in spans)


def test_a_collector_that_is_not_there_changes_nothing(tracker: Served) -> None:
    dead = Receiver()
    dead._server.server_close()
    found = run(tracker, TracesSetting(f"{dead.endpoint}/v1/traces", 1.0))
    assert found == orders(200)


def test_a_collector_that_never_answers_holds_nothing_up(tracker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are delivered and the hosts have ended while its first request is still open."""
    monkeypatch.setattr(exporting_module, "REQUEST_S", HANGS_S)
    with Receiver(answers=False) as receiver:
        found = run(tracker, TracesSetting(f"{receiver.endpoint}/v1/traces", 1.0))
        assert receiver.requests == 2, "one of each host, both without an answer"
        assert found == orders(200)


@pytest.mark.parametrize("fails", ["export", "converter"])
def test_a_library_that_raises_changes_nothing(
    tracker: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    def raising(*_: object) -> Any:
        raise RuntimeError("not today")

    target = "opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter.export"
    monkeypatch.setattr(target if fails == "export" else "lowtide.worker.exporting.converter", raising)
    with caplog.at_level(logging.WARNING, exporting_module.__name__):
        assert run(tracker, TracesSetting("http://127.0.0.1:9/v1/traces", 1.0)) == orders(200)
    assert "not today" in caplog.text


def test_spans_without_room_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting_module, "MAX_WAITING", 10)
    exporting = Exporting("http://127.0.0.1:9/v1/traces", "job", 1)
    for n in range(15):
        exporting.put(Span("source", "consumer", 1, n + 1, 0, 1, 2))
    assert exporting.gauges().dropped == 5
    exporting.close(0.0)


def test_a_collector_that_refuses_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporting_module, "EVERY_S", 0.01)
    with Receiver() as receiver, caplog.at_level(logging.WARNING, exporting_module.__name__):
        exporting = Exporting(f"{receiver.endpoint}/elsewhere", "job", 1)
        for n in (1, 2):
            exporting.put(Span("source", "consumer", 1, n, 0, 1, 2))
            deadline = time.monotonic() + HANGS_S
            while exporting.gauges().failed < n:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        exporting.close(HANGS_S)
    said = [record.getMessage() for record in caplog.records if receiver.endpoint in record.getMessage()]
    assert len(said) == 1, said


# -- doctor ------------------------------------------------------------------------------------------------------------


def asked(endpoint: str) -> Answer:
    conf = Conf.load(None, {"traces.endpoint": endpoint} if endpoint else {})
    return ask(Check("traces", traces), Surroundings(conf))


def test_doctor_says_whether_a_collector_takes_spans() -> None:
    assert asked("") == Answer("ok", "nothing is traced")
    with Receiver() as receiver:
        answer = asked(receiver.endpoint)
        assert (answer.verdict, receiver.requests, receiver.spans) == ("ok", 1, []), answer
        answer = asked(f"{receiver.endpoint}/elsewhere")
        assert answer.verdict == "warn"
        assert "404" in answer.found
        assert "OTLP over HTTP" in answer.way_out


def test_doctor_warns_of_a_collector_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting_module, "REQUEST_S", 0.1)
    dead = Receiver()
    dead._server.server_close()
    answer = asked(dead.endpoint)
    assert answer.verdict == "warn"
    assert dead.endpoint in answer.found


# -- conf --------------------------------------------------------------------------------------------------------------


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert traces_of(Conf.load()) is None
    conf = Conf.load(None, {"traces.endpoint": "http://collector:4318/", "traces.ratio": "0.5"})
    assert traces_of(conf) == TracesSetting("http://collector:4318/v1/traces", 0.5)


def test_without_the_library_traces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting_module, "find_spec", lambda _: None)
    with pytest.raises(ConfError) as caught:
        traces_of(Conf.load(None, {"traces.endpoint": "http://collector:4318"}))
    assert 'pip install "lowtide[traces]"' in caught.value.way_out


@pytest.mark.parametrize("setting", ["traces.ratio=2", "traces.endpoint=collector:4318", "traces.endpoint=http://a@b"])
def test_a_value_that_is_none_is_refused(setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(ConfError):
        Conf.load(None, {key: value})

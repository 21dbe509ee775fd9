"""Every flow that the documentation shows, on real Spark and Kafka: a job delivers what `run_locally` says."""

from __future__ import annotations

import re
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fraud_service import FraudService
from tests.judging import Judge, produce

import lowtide
from lowtide import Flow, Message, Stamped
from lowtide.cli.init import FLOW as FIRST_FLOW
from lowtide.flow.formats.endpoints import KafkaSink, KafkaSource
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.steps.graph import DEAD_LETTERS
from lowtide.flow.steps.steps import Read, Write
from lowtide.local.oracle import read_output

if TYPE_CHECKING:
    from tests.conftest import Spark

    from lowtide.conf import Conf

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NO_FLOWS = ("test_", "sqlite_sink", "orders_to_lake", "fraud_service")
EXAMPLES = [each for each in sorted((ROOT / "examples").glob("*.py")) if not each.name.startswith(NO_FLOWS)]
TYPED = ROOT / "plugin/tests/flows/typed.py"
LANES = 2
TIMES = 5
"""What goes in is a few records, so many times over."""
STEP_MS = 20
FRAUD_SERVICE = "http://127.0.0.1:8099/score"
RISK = 0.25
Inputs = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Shown:
    """A file with one flow, as a reader of the documentation has it, and what goes in; by default what it says itself.

    A page's examples are one file: it runs its flow on what `run_locally` is given there.

    Attributes:
        asks: The address of a service that it asks, as it stands in the text; empty for none.
        nightly: Two interpreters and the workers run it elsewhere, without Spark.
    """

    text: str
    inputs: Inputs | None = None
    asks: str = ""
    nightly: bool = False

    @property
    def name(self) -> str:
        return flows_in(self.text)[-1]


def flows_in(text: str) -> list[str]:
    return re.findall(r'\bFlow\("([^"]+)"', text)


def blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def shown() -> Iterator[Shown]:
    examples = blocks("docs/flows.md")
    for count in range(1, len(examples) + 1):
        if flows_in(examples[count - 1]):
            yield Shown("\n".join(examples[:count]), nightly=True)
    imports = "from dataclasses import dataclass, replace\nimport lowtide as lt\n"
    clicks = [b'{"user":"ann","page":"home"}', b'{"user":"bob","page":"home","number":7}', b"oops"]
    yield from (Shown(imports + block, {"clicks": clicks[:2]}) for block in blocks("README.md"))
    yield Shown(FIRST_FLOW, {"words": [b'{"word":"to"}', b'{"word":"be"}', b'{"word":"to"}']})
    yield from (
        Shown(block, {"clicks": clicks})
        for block in blocks("docs/tutorial.md")
        if "lt.Flow(" in block and "import lowtide" in block
    )
    given: dict[str, Inputs] = {
        "inverted_index": {"documents": [b'{"name":"a","text":"to be"}', b'{"name":"b","text":"to"}'] * 2},
        "payments": {"payments": [b'{"card":"a","cents":200000,"shop":"b"}', b'{"card":"a","cents":"many"}']},
        "components": {
            "edges": [b'{"one":"%c","other":"%c"}' % pair for pair in zip(b"bdac", b"cebf", strict=True)] + [b"oops"]
        },
        "shortest_paths": {
            "roads": [
                b'{"one":"%s","other":"%s","metres":%d}' % road
                for road in ((b"depot", b"a", 900), (b"a", b"b", 100), (b"b", b"c", 20), (b"depot", b"b", 300))
            ]
            + [b"oops"]
        },
        "fraud_score": {
            "payments": [b'{"id":"%d","card":"%d","cents":%d}' % (n, n % 3, 40_000 * (n % 4)) for n in range(9)]
            + [b"oops"]
        },
        "churn_model": {
            "accounts": [
                b'{"id":"%d","months":%d,"euros":%d.5,"complaints":%d}' % (n, 5 * n, 9 * n, n % 3) for n in range(9)
            ]
            + [b"oops"]
        },
        "retries": {"tickets": [b'{"id":"%d","topic":"login","words":%d}' % (n, 9 * n) for n in range(9)] + [b"oops"]},
    }
    asks = {"fraud_score": FRAUD_SERVICE}
    for example in EXAMPLES:
        text, name = example.read_text(encoding="utf-8"), example.stem
        yield Shown(text, given[name], asks.get(name, ""), nightly=True)
    yield Shown(TYPED.read_text(encoding="utf-8"), {"readings": runpy.run_path(str(TYPED))["READINGS"]})


SHOWN = list(shown())


def test_no_flow_of_the_documentation_is_left_out() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (*DOCUMENTS, *EXAMPLES)]
    assert {each.name for each in SHOWN} == {name for text in texts for name in flows_in(text)} | {"typed"}
    assert len(SHOWN) == len({each.name for each in SHOWN}) > 10


class Service(FraudService):
    """Resets the first connection of each key, and has one risk for all: what it says hangs on no key."""

    def risk(self, key: str) -> float | None:
        self.asked[key] += 1
        return None if self.asked[key] == 1 else RISK


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


@pytest.mark.parametrize(
    "example",
    [pytest.param(each, id=each.name, marks=[pytest.mark.nightly] if each.nightly else []) for each in SHOWN],
)
def test_a_job_delivers_what_run_locally_says(
    spark: Spark,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    service: Service,
    example: Shown,
) -> None:
    topics: dict[str, str] = {}
    ran: list[Inputs] = []
    run_locally, kafka = Flow.run_locally, lowtide.kafka

    def of_its_own(topic: str, *arguments: Any, **named: Any) -> Any:
        if topic not in topics:
            topics[topic] = spark.kafka.topic(topic, LANES)
        return kafka(topics[topic], *arguments, **named)

    def noted(
        flow: Flow, inputs: Inputs | None = None, *, states: Any = None, **named: Sequence[Any]
    ) -> dict[str, list[Any]]:
        ran.append({**(inputs or {}), **named})
        return run_locally(flow, ran[-1], states=states)

    file = tmp_path / f"shown_{example.name.replace('-', '_')}.py"
    assert example.asks in example.text
    file.write_text(example.text.replace(example.asks, service.url) if example.asks else example.text)
    with monkeypatch.context() as patches:
        patches.setattr(lowtide, "kafka", of_its_own)
        patches.setattr(Flow, "run_locally", noted)
        patches.setattr(sys, "path", [*sys.path])
        flow = load_flow(str(file))
    assert isinstance(flow, Flow)
    flow.name = unique(flow.name)
    inputs = ran[-1] if example.inputs is None else example.inputs
    conf = spark.conf()
    if any(isinstance(each, Stamped) for given in inputs.values() for each in given):
        inputs = at_start(flow, inputs)
        expected = flow.run_locally(inputs)
        produce_stamped(conf, flow, inputs)
    else:
        expected = produced_many_times(conf, flow, inputs)
    with spark.job(flow):
        assert Judge(flow, conf).right()
    assert not example.asks or len(service.asked) > len(expected)
    for name, sink in sinks(flow).items():
        assert expected[name], name
        found = [each.value for lane in read_output(conf.kafka, sink.topic).values() for each in lane]
        wanted = [each.value for each in expected[name]] if name == DEAD_LETTERS else values(sink, expected[name])
        assert sorted(map(repr, found)) == sorted(map(repr, wanted)), name


def at_start(flow: Flow, inputs: Inputs) -> Inputs:
    """What is there before a job is: not what comes later to a topic of which all that is there is preloaded."""
    return {
        name: [each for each in given if not (sources(flow)[name].preload and isinstance(each, Stamped))]
        for name, given in inputs.items()
    }


def produce_stamped(conf: Conf, flow: Flow, inputs: Inputs) -> None:
    """Put records in at the log times that they have: long ago, so that all windows of them will have closed."""
    for name, source in sources(flow).items():
        stamped: list[tuple[bytes | Message, int | None]] = [
            (value, int(each.at.timestamp() * 1000) if isinstance(each, Stamped) else None)
            for each in inputs.get(name, ())
            for value in values(source, [each.record if isinstance(each, Stamped) else each])
        ]
        produce(conf, source.topic, {partition: stamped[partition::LANES] for partition in range(LANES)})


def produced_many_times(conf: Conf, flow: Flow, inputs: Inputs) -> dict[str, list[Any]]:
    """Put records in, as often as `TIMES` says; what `run_locally` makes of them."""
    log = {name: values(source, inputs.get(name, ())) * TIMES for name, source in sources(flow).items()}
    expected = flow.run_locally(log)
    # In the order in which `run_locally` takes them, and all there before the job, which so goes by these timestamps.
    at_ms = time.time_ns() // 1_000_000 - STEP_MS * sum(map(len, log.values()))
    for name, source in sources(flow).items():
        stamped: list[tuple[bytes | Message, int | None]] = [
            (each, at_ms + STEP_MS * n) for n, each in enumerate(log[name])
        ]
        at_ms += STEP_MS * len(stamped)
        produce(conf, source.topic, {partition: stamped[partition::LANES] for partition in range(LANES)})
    return expected


def sources(flow: Flow) -> dict[str, KafkaSource]:
    return {call.name or "": call.step.source for call in flow.calls if isinstance(call.step, Read)}


def sinks(flow: Flow) -> dict[str, KafkaSink]:
    letters = {} if flow.dead_letters is None else {DEAD_LETTERS: flow.dead_letters}
    written = {call.name or "": call.step.sink for call in flow.calls if isinstance(call.step, Write)}
    return {name: sink for name, sink in written.items() if isinstance(sink, KafkaSink)} | letters


def values(of: KafkaSource | KafkaSink, records: Sequence[Any]) -> list[Any]:
    """Records as the values of messages; what is bytes, or a message, is one already."""
    return [each if isinstance(each, bytes | Message) else of.format.encode([each])[0] for each in records]

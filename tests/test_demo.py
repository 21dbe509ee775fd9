"""The demonstration: its parts, and all of it as `make demo` runs it."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from demo.corpus import MAX_CHARACTERS, edited, read_corpus
from demo.feeding import Feeder
from demo.looking_up import documents_with
from demo.reading import Reader, caught_up, steady
from inverted_index import Document, flow
from tests.waiting import HANGS_S, wait_until

from lowtide.conf import KafkaConf
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.oracle import Output, compare, expected_lanes, read_log, read_output

if TYPE_CHECKING:
    from tests.conftest import Kafka

ROOT = Path(__file__).parents[1]
LIMIT_S = 300


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Text files, some of which are none of ours."""
    texts = tmp_path / "texts"
    (texts / "deep").mkdir(parents=True)
    (texts / "site-packages").mkdir()
    for number in range(20):
        lines = (f"line {row} of {number} and words w{(row * 7 + number) % 23}" for row in range(30))
        (texts / "deep" / f"{number:02}.md").write_text("\n".join(lines))
    (texts / "long.TXT").write_text("many words\n" * 10_000)
    (texts / "wrong.txt").write_bytes(b"caf\xe9 be")
    (texts / "picture.png").write_text("no text")
    (texts / "site-packages" / "foreign.py").write_text("foreign")
    return texts


def test_a_folders_texts_are_the_same_each_time_and_bounded(folder: Path) -> None:
    corpus = read_corpus(folder, 2)
    assert [text.name for text in corpus.texts] == [*(f"deep/{n:02}.md" for n in range(20)), "long.TXT", "wrong.txt"]
    assert read_corpus(folder, 2) == corpus
    assert max(len(text.first) for text in corpus.texts) <= MAX_CHARACTERS
    assert {text.partition for text in corpus.texts} == {0, 1}
    assert corpus.said.startswith(f"22 of 22 files in {folder}")


def test_the_standard_library_is_there_wherever_python_is() -> None:
    corpus = read_corpus(None, 2)
    assert len(corpus.texts) > 500
    assert 100_000 < corpus.changes() < 500_000


def test_the_second_version_has_less_and_more() -> None:
    text = "\n".join(f"w{number}" for number in range(50))
    before, after = Counter(text.split()), Counter(edited("a", text).split())
    assert after - before
    assert len(before - after) >= 7
    assert edited("a", text) == edited("a", text) != edited("b", text)


def test_what_is_due_is_what_the_flow_makes_of_both_versions(folder: Path) -> None:
    corpus = read_corpus(folder, 2)
    first = [Document(text.name, text.first) for text in corpus.texts]
    second = [Document(text.name, text.second) for text in corpus.texts]
    changes: list[Any] = flow.run_locally(documents=[*first, *second])["index"]
    assert len(changes) == corpus.changes()
    assert any(change.removed for change in changes)
    outputs = [Output(each.word.encode(), json.dumps(vars(each)).encode(), 0) for each in changes]
    for word in ("w5", "line", "café", "lowtide"):
        assert documents_with(word, outputs) == corpus.documents_with(word)
    without = [output for output in outputs if output != next(each for each in outputs if each.key == b"line")]
    assert documents_with("line", without) != corpus.documents_with("line")


def test_latency_is_of_what_came_before_the_kill_and_after_it_was_caught_up() -> None:
    # A change each 100 ms for 20 s; killed at 10 s, nothing until 14 s, then at once all that was due.
    stamps = np.arange(0, 20_000, 100)
    times = stamps + 20.0
    held = (times >= 10_000) & (times < 14_000)
    times[held] = 14_000.0
    times[-1] += 500
    latency, rate = steady(stamps, times, (10_000.0, 14_000.0))
    assert sorted(set(latency.tolist())) == [20.0, 520.0]
    # From 3 s on: 70 of them but for the one that was under way at 10 s, and 60 from 14 s on.
    assert len(latency) == 70 + 60
    assert rate == pytest.approx(10, rel=0.05)


def test_a_reader_has_caught_up_with_the_first_change_that_is_young() -> None:
    stamps, times = np.array([900, 1_000, 2_000, 2_900, 3_200]), np.array([920.0, 4_000.0, 4_001.0, 4_100.0, 4_100.0])
    assert caught_up(stamps, times, 950) == 4_100
    assert caught_up(stamps[:-1], times[:-1], 950) is None


def test_latency_of_nothing_is_nothing() -> None:
    latency, rate = steady(np.empty(0, np.int64), np.empty(0), (1.0, 2.0))
    assert len(latency) == 0
    assert np.isnan(rate)


@pytest.mark.kafka
def test_versions_go_in_order_from_two_producers_and_the_topic_answers(kafka: "Kafka", folder: Path) -> None:
    from confluent_kafka import Producer

    corpus, source, sink = read_corpus(folder, 2), kafka.topic("documents", 2), kafka.topic("index", 2)
    feeder = Feeder(kafka.address, source, corpus.texts, 2, seconds=1.0, gate_share=0.5)
    reader = Reader(kafka.address, sink, 2)
    feeder.start()
    reader.start()
    try:
        feeder.open_gate()
        wait_until(lambda: feeder.done, HANGS_S, "the feeder is done")
        sent = kafka.messages(source)
        assert feeder.changes == corpus.changes()
        assert feeder.sent == feeder.total == len(sent) == 2 * len(corpus.texts)
        versions: dict[str, list[tuple[int, str]]] = {}
        for message in sent:
            document = json.loads(message.value())
            versions.setdefault(document["name"], []).append((message.partition(), document["text"]))
        for text in corpus.texts:
            assert versions[text.name] == [(text.partition, text.first), (text.partition, text.second)]

        conf, plan = KafkaConf(bootstrap_servers=kafka.address), compile_flow(flow, parallelism=2)
        read = read_log(conf, source, {f"{source}-0": 0, f"{source}-1": 1})
        log = {"documents": [message for messages in read.values() for message in messages]}
        lanes = expected_lanes(plan, log, ())
        producer = Producer({"bootstrap.servers": kafka.address})
        for lane, outputs in lanes.items():
            for key, value, timestamp, _ in outputs:
                producer.produce(sink, value, key, lane, timestamp=timestamp)
        producer.flush(30)
        wait_until(lambda: len(reader) >= corpus.changes(), HANGS_S, "all changes are read")
        delivered = read_output(conf, sink)
        assert compare(plan, log, (), delivered).right
        everything = [output for lane in delivered.values() for output in lane]
        assert documents_with("line", everything) == corpus.documents_with("line")
    finally:
        feeder.end()
        reader.end()
    stamps, times = reader.seen()
    assert len(stamps) == len(times) == corpus.changes()
    assert (times >= stamps - 1).all()


@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
def test_the_demo_survives_its_kill_and_says_so_in_its_last_line(folder: Path) -> None:
    # More documents than the folder has, so that records come late on any machine.
    for number in range(400):
        lines = (f"line {row} of {number} has words w{(row * 11 + number) % 37} v{row}" for row in range(40))
        (folder / f"more-{number:03}.txt").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "examples", "DOCUMENTS": str(folder), "WORD": "line"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert list(said) == [
        "records", "delivered", "lost", "duplicated", "out_of_order", "repairs", "kills", "records_per_s", "p50_ms",
        "p99_ms",
    ]  # fmt: skip
    assert (said["lost"], said["duplicated"], said["out_of_order"], said["kills"]) == (0, 0, 0, 1)
    assert said["records"] == 2 * 422
    assert said["repairs"] > 0
    assert not (ROOT / ".lowtide/demo/services").exists()


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.s3
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.nightly
def test_the_lake_demo_has_each_row_once_in_each_store() -> None:
    paths = os.pathsep.join(["examples", ".", "snapshots/tests/support"])
    done = subprocess.run(
        [sys.executable, "-m", "lake_demo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (said["lost"], said["duplicated"], said["kills"]) == (0, 0, 1)
    assert said["files"] > 1

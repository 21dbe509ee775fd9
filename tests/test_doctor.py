"""`lowtide doctor` against real servers, and against what is wrong."""

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.judging import produce
from tests.waiting import HANGS_S, wait_until

import lowtide
from lowtide.api import Flow
from lowtide.cli.doctor import show_lateness
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.doctor import CHECKS, Answer, Surroundings, ask
from lowtide.doctor.network import network
from lowtide.driver.preflight import look
from lowtide.embedded import EmbeddedServices
from lowtide.errors import FlowError, TopicUnknown
from lowtide.flow.plan.compiler import compile_job

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]


def answered(name: str, surroundings: Surroundings) -> Answer:
    return ask(next(check for check in CHECKS if check.name == name), surroundings)


def flow_of(source: str, sink: str) -> Flow:
    flow = Flow("flow")
    flow.read("in", lowtide.kafka(source, lowtide.raw())).write("out", lowtide.kafka(sink, lowtide.raw()))
    return flow


@pytest.fixture(name="services", scope="module")
def _services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServices]:
    with EmbeddedServices(tmp_path_factory.mktemp("doctor") / "services") as services:
        yield services


@pytest.fixture(name="conf")
def _conf(services: EmbeddedServices, tmp_path: Path) -> Conf:
    settings = {
        "embedded.folder": str(services.folder),
        "kafka.bootstrap_servers": services.kafka,
        "job.folder": str(tmp_path),
        "spark.checkpoint_folder": str(tmp_path),
    }
    return Conf.load(None, settings)


def stopped(tmp_path: Path, **settings: str) -> Conf:
    folder = {"embedded.folder": str(tmp_path / "none")}
    return Conf.load(None, folder | {name.replace("__", "."): value for name, value in settings.items()})


def test_a_sound_machine_passes_every_check(conf: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    topics = Topics(conf.kafka)
    topics.create("sound-in", partitions=2)
    topics.create("sound-out", partitions=2)
    surroundings = Surroundings(conf, flow_of("sound-in", "sound-out"), probe=True)
    answers = {check.name: ask(check, surroundings) for check in CHECKS}
    assert {name: answer for name, answer in answers.items() if answer.verdict == "fail"} == {}
    assert answers["topics"].found.startswith("sound-in: 2 partitions, CreateTime")
    assert "known within" in answers["clock"].found

    def is_clean() -> bool:
        return not any(name.startswith("lowtide-doctor") for name in topics.names())

    wait_until(
        is_clean, HANGS_S, "the topic that it tried itself on is deleted"
    )  # Kafka deletes a while after it says so.


def test_a_topic_that_is_not_there_is_named(conf: Conf) -> None:
    answer = answered("topics", Surroundings(conf, flow_of("nowhere", "sink")))
    assert answer.verdict == "fail"
    assert '"nowhere"' in answer.found
    assert "lowtide topic create nowhere" in answer.way_out
    with pytest.raises(TopicUnknown):
        Topics(conf.kafka).describe("nowhere")


def test_a_compacted_source_is_refused(conf: Conf) -> None:
    topics = Topics(conf.kafka)
    topics.create("squeezed", config={"cleanup.policy": "compact"})
    topics.create("squeezed-out", partitions=2)
    answer = answered("topics", Surroundings(conf, flow_of("squeezed", "squeezed-out")))
    assert answer.verdict == "fail"
    assert "compacted" in answer.found


def test_too_few_slots_are_said_with_the_number_needed(conf: Conf) -> None:
    Topics(conf.kafka).create("wide", partitions=5)
    Topics(conf.kafka).create("wide-out", partitions=2)
    flow = Flow("flow")
    wide = flow.read("in", lowtide.kafka("wide", lowtide.raw()))
    wide.key_by("key").write("out", lowtide.kafka("wide-out", lowtide.raw()))
    few = Conf.load(
        None, {"kafka.bootstrap_servers": conf.kafka.bootstrap_servers, "embedded.folder": conf.embedded.folder}
    )
    assert answered("slots", Surroundings(few, flow)).verdict == "ok"
    few = Conf.load(
        None,
        {
            "kafka.bootstrap_servers": conf.kafka.bootstrap_servers,
            "embedded.folder": conf.embedded.folder,
            "spark.master": "local[6]",
        },
    )
    answer = answered("slots", Surroundings(few, flow))
    assert answer.verdict == "fail"
    assert "needs 7 slots at once, Spark has 6" in answer.found
    assert "local[7]" in answer.way_out


def test_embedded_services_that_do_not_run_are_no_fault_yet(tmp_path: Path) -> None:
    surroundings = Surroundings(stopped(tmp_path))
    for name in ("broker", "zookeeper"):
        answer = answered(name, surroundings)
        assert (answer.verdict, answer.way_out) == ("warn", "start it: lowtide up")


def test_another_broker_that_does_not_answer_is_a_fault(tmp_path: Path) -> None:
    conf = stopped(
        tmp_path, embedded__enabled="false", kafka__bootstrap_servers="127.0.0.1:9", kafka__reach_limit_ms="300"
    )
    answer = answered("broker", Surroundings(conf))
    assert answer.verdict == "fail"
    assert "127.0.0.1:9" in answer.found


def test_another_zookeeper_is_asked_too(services: EmbeddedServices, tmp_path: Path) -> None:
    there = stopped(tmp_path, embedded__enabled="false", zookeeper__hosts=services.zookeeper)
    answer = answered("zookeeper", Surroundings(there))
    assert (answer.verdict, answer.found) == ("ok", f"ZooKeeper answers at {services.zookeeper}, /lowtide; 0 jobs")
    gone = stopped(tmp_path, embedded__enabled="false", zookeeper__hosts="127.0.0.1:9", zookeeper__reach_limit_s="0.3")
    answer = answered("zookeeper", Surroundings(gone))
    assert answer.verdict == "fail"
    assert "127.0.0.1:9" in answer.found


def test_a_port_that_another_program_holds_is_a_fault(services: EmbeddedServices, tmp_path: Path) -> None:
    port = services.kafka.rpartition(":")[2]
    answer = answered("ports", Surroundings(stopped(tmp_path, embedded__kafka_port=port)))
    assert answer.verdict == "fail"
    assert f"process {services.pid('kafka')} " in answer.found
    assert "[embedded].kafka_port" in answer.way_out


def test_no_java_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings = Surroundings(stopped(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "JAVA_HOME" in answered("java", surroundings).found
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = answered("java", surroundings)
    assert answer.verdict == "fail"
    assert "install a JDK" in answer.way_out


def test_an_old_java_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    answer = answered("java", Surroundings(stopped(tmp_path)))
    assert answer.verdict == "fail"
    assert "is Java 8" in answer.found


def test_another_environments_interpreter_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings = Surroundings(stopped(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert answered("PYSPARK_PYTHON", surroundings).verdict == "ok"
    monkeypatch.setenv("PYSPARK_PYTHON", str(Path(sys.base_prefix) / "bin" / "python3"))
    answer = answered("PYSPARK_PYTHON", surroundings)
    assert answer.verdict == "fail"
    assert sys.prefix in answer.found
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")
    assert answered("PYSPARK_PYTHON", surroundings).verdict == "fail"


def test_a_folder_in_whose_place_a_file_lies_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = answered("folders", Surroundings(stopped(tmp_path, job__folder=str(tmp_path / "file" / "jobs"))))
    assert answer.verdict == "fail"
    assert "[job].folder" in answer.way_out


def test_a_folder_for_temporary_files_that_takes_no_socket_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings = Surroundings(stopped(tmp_path))
    assert "Unix sockets work" in answered("loopback", surroundings).found
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    answer = answered("loopback", surroundings)
    assert (answer.verdict, "cannot be made" in answer.found, "TMPDIR" in answer.way_out) == ("fail", True, True)


@dataclass(frozen=True)
class Click:
    page: str
    at: datetime


def later(one: Click, _: Click) -> Click:
    return one


def test_lateness_is_shown_of_the_newest_messages(conf: Conf, capsys: pytest.CaptureFixture[str]) -> None:
    topics = Topics(conf.kafka)
    topics.create("late-clicks", partitions=2)
    sink = lowtide.kafka("late-out", lowtide.json(Click))
    flow = Flow("late")
    clicks = flow.read("clicks", lowtide.kafka("late-clicks", lowtide.json(Click))).key_by("page")
    windows = lowtide.tumbling(lowtide.minutes(1))
    clock = lowtide.event_time("at", wait=lowtide.seconds(2), late="drop")
    clicks.window("visits", windows, time=clock).reduce(later).write("out", sink)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    for partition, behind in enumerate((1, 5)):
        value = lowtide.json(Click).encode([Click("home", now - timedelta(seconds=behind))])[0]
        assert value is not None
        produce(conf, "late-clicks", {partition: [(value, int(now.timestamp() * 1000))]})
    assert show_lateness(conf, flow, as_json=False) == 0
    said = capsys.readouterr().out
    assert "visits: 2 records, log time less at:" in said
    assert "p50 5,000 ms" in said
    assert "1 came after the wait of 2000 ms" in said
    assert "late-clicks-1: 1 records, dated by the producer:\n  0 older than one before them, by p50 0 ms" in said
    stated = Flow("stated")
    source = lowtide.kafka("late-clicks", lowtide.json(Click), timestamps="broker")
    stated.read("clicks", source).write("out", sink)
    topics.create("late-out", partitions=4)
    with pytest.raises(FlowError, match='the broker dates the records of topic "late-clicks", but the producer does'):
        look(compile_job(stated, conf), conf)


def test_more_shards_than_cores_are_warned_of(tmp_path: Path) -> None:
    assert answered("tracker", Surroundings(stopped(tmp_path))).found == "one process"
    answer = answered("tracker", Surroundings(stopped(tmp_path, tracker__shards="64")))
    assert answer.found.startswith("64 shards and their merge, on ")
    assert answer.verdict == ("warn" if len(os.sched_getaffinity(0)) < 64 else "ok")


def test_what_goes_over_the_network_unprotected_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.driver.session._context", lambda: None)  # Of other tests in this process.

    def asked(**settings: object) -> Answer:
        given = {key.replace("__", "."): value for key, value in settings.items()}
        return network(Surroundings(Conf.load(None, given)))

    alone = asked()
    assert (alone.verdict, alone.way_out) == ("ok", "")
    assert alone.found.startswith("service, tracker and workers: on this machine, Unix sockets; control API: TLS,")
    assert "Kafka: PLAINTEXT, in the clear" in alone.found
    cluster: dict[str, object] = {"spark__master": "spark://spark:7077", "kafka__bootstrap_servers": "kafka:9092"}
    found = asked(**cluster)
    assert found.verdict == "warn"
    assert "frames: sealed; Spark's own: without spark.authenticate;" in found.found
    assert "set [kafka].security_protocol" in found.way_out
    assert "service, tracker, its shards and workers: TLS 1.3, mutual;" in found.found
    assert "tasks and workers of one executor: Unix sockets;" in found.found
    assert "[exchange]" not in found.way_out
    clear = asked(**cluster, exchange__sealed="never")
    assert "frames: in the clear" in clear.found
    assert "leave [exchange].sealed at auto" in clear.way_out
    clear = asked(**cluster, exchange__tls="never", tracker__graph="graph:7070")
    assert "service, tracker, its shards and workers: authenticated, in the clear" in clear.found
    assert "leave [exchange].tls at auto" in clear.way_out
    assert 'set [tracker].graph = "tls:graph:7070"' in clear.way_out
    assert "the graph's tracker: TLS 1.3, mutual" in asked(**cluster, tracker__graph="tls:graph:7070").found
    assert "workers: on this machine, TLS 1.3, mutual" in asked(exchange__tls="always").found
    sound = Conf.load(
        None,
        {
            "spark.master": "spark://spark:7077",
            "spark.properties": {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"},
            "kafka.bootstrap_servers": "kafka:9092",
            "kafka.security_protocol": "SSL",
            "zookeeper.hosts": "zookeeper:2181",
        },
    )
    assert network(Surroundings(sound)).way_out.startswith("set [zookeeper].ssl_ca_file")
    sound = replace(sound, zookeeper=replace(sound.zookeeper, ssl_ca_file="ca.pem"))
    answer = network(Surroundings(sound))
    assert answer.verdict == "ok", answer
    assert "Spark's own: encrypted" in answer.found

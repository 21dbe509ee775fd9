"""The embedded Kafka and ZooKeeper for real: start, stop, and everything that can be in the way."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from tests.waiting import HANGS_S, wait_until

from lowtide.conf import KafkaConf
from lowtide.connectors.topics import TopicExists, TopicRefused, Topics
from lowtide.embedded import EmbeddedServices, down, servers, service_status, up
from lowtide.embedded.errors import FolderInUse, ServerDied, ServerDiffers
from lowtide.embedded.ports import free_port
from lowtide.embedded.process import read_record
from lowtide.errors import PortTaken, ServiceUnavailable, TopicUnknown

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

ANY = {"kafka": 0, "zookeeper": 0}
ONLY_ZOOKEEPER = {"zookeeper": 0}
PARENT = """
import sys, time
from lowtide.embedded import EmbeddedServices

with EmbeddedServices(sys.argv[1], only=["zookeeper"]):
    print("up", flush=True)
    time.sleep(120)
"""


def lowtide(*arguments: str, folder: Path, ports: dict[str, int]) -> "subprocess.Popen[str]":
    settings = [f"embedded.{name}_port={port}" for name, port in ports.items()]
    chosen = [word for setting in (f"embedded.folder={folder}", *settings) for word in ("--set", setting)]
    command = [sys.executable, "-m", "lowtide.cli", *arguments, *chosen]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def running(pid: int | None) -> bool:
    """True if the process runs; one that has ended and that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing runs any more after the test, whatever happened in it."""
    yield tmp_path / "services"
    down(tmp_path / "services", grace_s=0)


@pytest.fixture(name="shared", scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServices]:
    with EmbeddedServices(tmp_path_factory.mktemp("shared") / "services") as services:
        yield services


def sent(bootstrap: str, topic: str, values: list[bytes], *, transaction: str | None = None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap} | ({"transactional.id": transaction} if transaction else {}))
    if transaction:
        producer.init_transactions(HANGS_S)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    if transaction:
        producer.commit_transaction(HANGS_S)
    assert producer.flush(HANGS_S) == 0


def received(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() or b"" for message in consumer.consume(count, HANGS_S)]
    finally:
        consumer.close()


def test_kafka_takes_transactions_and_zookeeper_keeps_nodes(shared: EmbeddedServices) -> None:
    Topics(KafkaConf(bootstrap_servers=shared.kafka)).create("records")
    sent(shared.kafka, "records", [b"a", b"b"], transaction="test")
    assert received(shared.kafka, "records", 2) == [b"a", b"b"]
    client = KazooClient(shared.zookeeper)
    client.start(timeout=HANGS_S)
    try:
        client.create("/lowtide/job", b"1", makepath=True)
        assert client.get("/lowtide/job")[0] == b"1"
    finally:
        client.stop()
        client.close()


def test_topics_are_created_described_and_deleted(shared: EmbeddedServices) -> None:
    topics = Topics(KafkaConf(bootstrap_servers=shared.kafka))
    topics.create("compacted", partitions=3, config={"cleanup.policy": "compact"})
    found = topics.describe("compacted")
    assert (found.partitions, found.timestamps, found.cleanup) == (3, "CreateTime", "compact")
    with pytest.raises(TopicExists, match='"compacted" exists already'):
        topics.create("compacted")
    with pytest.raises(TopicRefused, match="invalid"):
        topics.create("no good")
    topics.delete("compacted")
    wait_until(lambda: "compacted" not in topics.names(), HANGS_S, "the topic is gone")
    with pytest.raises(TopicUnknown, match="lowtide topic create compacted"):
        topics.describe("compacted")
    with pytest.raises(TopicUnknown):
        topics.delete("compacted")


def test_topics_are_not_made_by_asking_for_them(shared: EmbeddedServices) -> None:
    topics = Topics(KafkaConf(bootstrap_servers=shared.kafka))
    producer = Producer({"bootstrap.servers": shared.kafka, "message.timeout.ms": 500})
    producer.produce("typo", b"")
    producer.flush(5)
    assert "typo" not in topics.names()


def test_a_broker_that_is_not_there_is_named_with_the_setting() -> None:
    topics = Topics(KafkaConf(bootstrap_servers="127.0.0.1:9", reach_limit_ms=300))
    with pytest.raises(ServiceUnavailable, match=r"(?s)within 0\.3 s.*127\.0\.0\.1:9.*lowtide up"):
        topics.names()


def test_everything_is_bound_to_loopback_and_lies_in_the_folder(shared: EmbeddedServices) -> None:
    for name in ("kafka", "zookeeper"):
        pid = shared.pid(name)
        assert pid is not None
        held = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists()}
        tables = [Path(f"/proc/net/{table}").read_text() for table in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()]
        addresses = {line[1].rpartition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in held}
        assert addresses
        assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
        written = {path for path in held if path.startswith("/") and path.endswith((".log", ".index", ".lock"))}
        assert all(Path(path).is_relative_to(shared.folder) for path in written)


def test_the_folder_of_running_services_is_refused(shared: EmbeddedServices) -> None:
    with pytest.raises(FolderInUse, match="lowtide down"), EmbeddedServices(shared.folder):
        pass
    assert {service.state for service in service_status(shared.folder)} == {"running"}


def test_a_killed_kafka_comes_back_with_its_records_on_its_port(folder: Path) -> None:
    with EmbeddedServices(folder, only=["kafka"]) as services:
        address = services.kafka
        Topics(KafkaConf(bootstrap_servers=address)).create("records")
        sent(address, "records", [b"before"])
        services.stop("kafka", grace_s=0)
        assert services.pid("kafka") is None
        services.start("kafka")
        assert services.kafka == address
        assert received(address, "records", 1) == [b"before"]


def test_up_is_idempotent_and_down_keeps_the_data(folder: Path) -> None:
    ports = {"kafka": free_port(), "zookeeper": free_port()}
    first = lowtide("up", folder=folder, ports=ports)
    assert first.wait(120) == 0, first.communicate()[1]
    pids = {service.name: service.pid for service in service_status(folder)}
    second = lowtide("up", folder=folder, ports=ports)
    assert second.wait(120) == 0
    shown = lowtide("services", "--json", folder=folder, ports=ports)
    found = {each["name"]: each for each in json.loads(shown.communicate()[0])}
    assert {name: each["pid"] for name, each in found.items()} == pids
    assert {name: each["address"] for name, each in found.items()} == {n: f"127.0.0.1:{p}" for n, p in ports.items()}
    assert all(each["state"] == "running" and each["data_bytes"] > 0 for each in found.values())
    Topics(KafkaConf(bootstrap_servers=found["kafka"]["address"])).create("kept")

    with pytest.raises(ServerDiffers, match="kafka_port"):
        up(servers(folder, {"kafka": free_port()}))

    stopped = lowtide("down", folder=folder, ports=ports)
    assert stopped.wait(60) == 0
    assert {service.state for service in service_status(folder)} == {"stopped"}
    assert not any(running(pid) for pid in pids.values())
    with EmbeddedServices(folder, only=["kafka"]) as services:
        assert Topics(KafkaConf(bootstrap_servers=services.kafka)).names() == ["kept"]


def test_two_ups_at_once_start_one_server(folder: Path) -> None:
    ports = {"kafka": 0, "zookeeper": free_port()}
    both = [lowtide("up", folder=folder, ports=ports) for _ in range(2)]
    said = [each.communicate(timeout=180)[1] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sum("kafka: starting" in each for each in said) == 1
    first, second = [[line.split(" (")[0] for line in each.splitlines() if "answers" in line] for each in said]
    assert len(first) == 2
    assert first == second


def test_a_taken_port_is_named_with_its_owner_and_the_setting_and_nothing_is_started(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        expected = rf"(?s)port {port} for kafka is taken.*process {os.getpid()} .*\[embedded\]\.kafka_port"
        with pytest.raises(PortTaken, match=expected):
            up(servers(folder, {"kafka": port, "zookeeper": 0}))
    assert {service.state for service in service_status(folder)} == {"stopped"}


def test_a_damaged_data_folder_is_said_with_the_last_lines_and_nothing_is_left(folder: Path) -> None:
    data = folder / "kafka" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=other\n")
    with pytest.raises(ServerDied, match=r"(?s)kafka ended while it started.*Stored node id 7.*remove .*/kafka/data"):
        up(servers(folder, ANY))
    assert {service.state for service in service_status(folder)} == {"stopped"}


def test_a_damaged_zookeeper_is_said_likewise(folder: Path) -> None:
    up(servers(folder, ONLY_ZOOKEEPER))
    down(folder)
    for snapshot in (folder / "zookeeper" / "data" / "version-2").glob("snapshot.*"):
        snapshot.write_bytes(b"\0" * 100)
    (folder / "zookeeper" / "data" / "version-2" / "log.1").write_bytes(b"\xff" * 100)
    with pytest.raises(ServerDied, match="zookeeper ended while it started"):
        up(servers(folder, ONLY_ZOOKEEPER))


def test_a_stale_record_hurts_nobody(folder: Path) -> None:
    up(servers(folder, ONLY_ZOOKEEPER))
    record = read_record(folder / "zookeeper" / "process.json")
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not record.alive(), HANGS_S, "the server has ended")
    assert [service.state for service in service_status(folder)] == ["dead", "stopped"]
    # The id belongs to this very process now.
    stale = {"pid": os.getpid(), "start_time": record.start_time, "boot_id": record.boot_id}
    (folder / "zookeeper" / "process.json").write_text(json.dumps(stale | {"server": "x", "port": 1, "parent": 0}))
    assert down(folder) == []
    up(servers(folder, ONLY_ZOOKEEPER))
    assert down(folder) == ["zookeeper"]


def test_a_killed_parent_takes_its_services_along(folder: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    record = read_record(folder / "zookeeper" / "process.json")
    assert record is not None
    assert record.parent == parent.pid
    parent.kill()
    parent.communicate()
    wait_until(lambda: not record.alive(), HANGS_S, "the server has ended")


def test_services_that_are_up_outlive_whoever_started_them(folder: Path) -> None:
    starter = lowtide("up", folder=folder, ports={"kafka": 0, "zookeeper": 0})
    assert starter.stderr is not None
    for line in starter.stderr:
        if line.startswith("zookeeper: answers"):
            break
    starter.kill()
    starter.communicate()
    record = read_record(folder / "zookeeper" / "process.json")
    assert record is not None
    assert record.alive()
    assert record.parent == 0
    assert "zookeeper" in down(folder)

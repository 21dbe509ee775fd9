"""A server without running: its configuration, its last words, its size."""

from pathlib import Path

from lowtide.embedded import KafkaServer, ZooKeeperServer, servers
from lowtide.embedded.kafka import cluster_id
from lowtide.embedded.server import LOG_FILE_BYTES, LOG_LINES_SHOWN
from lowtide.jars.java import Java

JAVA = Java(Path("/usr/bin/java"), "PATH", 17)


def test_each_server_has_its_place_below_the_folder() -> None:
    placed = servers(Path("/somewhere"), {"kafka": 1, "zookeeper": 2})
    assert [(server.name, server.folder, server.port) for server in placed] == [
        ("zookeeper", Path("/somewhere/zookeeper"), 2),
        ("kafka", Path("/somewhere/kafka"), 1),
    ]


def test_kafka_is_configured_for_one_node_on_loopback(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, 4711)
    server.data.mkdir()
    (server.data / "meta.properties").touch()  # as if it had been formatted
    server.prepare(JAVA)
    lines = (tmp_path / "server.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert all("127.0.0.1:" in address for address in settings["listeners"].split(","))
    assert settings["advertised.listeners"] == "CLIENT://127.0.0.1:4711"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["group.initial.rebalance.delay.ms"] == "0"
    assert settings["log.dirs"] == str(tmp_path / "data")
    assert {value for name, value in settings.items() if name.endswith("replication.factor")} == {"1"}
    assert str(LOG_FILE_BYTES) in (tmp_path / "logging.properties").read_text()


def test_zookeeper_is_configured_for_loopback_without_its_admin_server(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path, 4712)
    server.prepare(JAVA)
    settings = dict(line.split("=", 1) for line in (tmp_path / "zoo.cfg").read_text().splitlines())
    assert settings["clientPortAddress"] == "127.0.0.1"
    assert settings["admin.enableServer"] == "false"
    assert server.command(JAVA)[0] == "/usr/bin/java"


def test_last_words_are_of_the_last_start_and_without_stack_frames(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, 1)
    assert "wrote nothing" in server.last_words()
    server.log.write_text("ERROR of an earlier life\n")
    earlier = server.log_bytes()
    with server.log.open("a") as log:
        log.write("ERROR the reason\n\tat some.Frame(File.java:1)\n\t... 9 more\n")
    server.output.write_text("printed\n")
    assert server.last_words(earlier) == "  ERROR the reason\n  printed"
    server.log.write_text("new\n")  # rolled over
    assert server.last_words(earlier) == "  new\n  printed"
    server.log.write_text("line\n" * 100)
    assert len(server.last_words().splitlines()) == LOG_LINES_SHOWN


def test_the_size_counts_what_is_on_disk(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, 1)
    assert server.data_bytes() == 0
    server.data.mkdir()
    with (server.data / "index").open("wb") as file:
        file.truncate(10 << 20)  # preallocated, as Kafka's indexes are
    assert server.data_bytes() < 1 << 20
    (server.data / "log").write_bytes(b"x" * (1 << 20))
    assert server.data_bytes() >= 1 << 20


def test_a_cluster_id_never_looks_like_an_option() -> None:
    ids = {cluster_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(len(made) == 22 and not made.startswith("-") for made in ids)

"""TLS to a real ZooKeeper: who gets in, and who is believed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from hanging import HANGS_S

from lowtide.conf import ZooKeeperConf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.embedded.ports import answers, free_port
from lowtide.embedded.zookeeper import JARS, spark_jars
from lowtide.errors import ConfError
from lowtide.jars.java import find_java
from lowtide_snapshots.errors import ZooKeeperUnavailable

NETTY = ("buffer", "codec-base", "common", "handler", "resolver", "transport", "transport-classes-epoll",
         "transport-native-unix-common")  # fmt: skip
CONFIGURATION = """
dataDir={folder}/data
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder}/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={folder}/authority.pem
ssl.trustStore.type=PEM
ssl.clientAuth=need
tickTime=500
admin.enableServer=false
"""


@dataclass(frozen=True)
class Secured:
    """A ZooKeeper that speaks TLS alone, and asks for a certificate."""

    address: str
    authority: Authority


@pytest.fixture(scope="module", name="secured")
def _secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield from started(tmp_path_factory.mktemp("zookeeper") / "right", "127.0.0.1")


def started(folder: Path, host: str) -> Iterator[Secured]:
    authority = Authority(folder)
    authority.certify("server", host)
    port = free_port()
    (folder / "zoo.cfg").write_text(CONFIGURATION.format(folder=folder, port=port))
    jars = [*spark_jars(JARS), *spark_jars(f"netty-{name}-4*" for name in NETTY)]
    command = [str(find_java().executable), "-Xmx128m", "-cp", ":".join(map(str, jars))]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")]
    with (folder / "output").open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until = time.monotonic() + HANGS_S
        while not answers(port):
            assert time.monotonic() < until, (folder / "output").read_text()
        yield Secured(f"127.0.0.1:{port}", authority)
    finally:
        server.kill()
        server.wait()


def access(secured: Secured, authority: Authority | None = None, limit_s: float = HANGS_S) -> ZooKeeperAccess:
    """The way in with a certificate of an authority, by default of the server's."""
    certificate, key = (authority or secured.authority).certify("client")
    return ZooKeeperAccess.of(
        ZooKeeperConf(
            hosts=secured.address,
            reach_limit_s=limit_s,
            ssl_ca_file=str(secured.authority.file),
            ssl_certificate_file=str(certificate),
            ssl_key_file=str(key),
        )
    )


@pytest.mark.zookeeper
def test_a_job_is_kept_by_a_zookeeper_under_tls(secured: Secured) -> None:
    """Many answers at once, which come in few records of TLS, are all seen."""
    ours = access(secured)
    with ours.store("shop") as store:
        assert store.record() is None
        zk, _ = store.nodes
        zk.ensure("/kept", shared=True)
        for _ in range(20):
            began = time.monotonic()
            assert zk.get_all([f"/none/{each}" for each in range(200)]) == [None] * 200
            assert time.monotonic() - began < HANGS_S
        assert zk.children("/") == ["kept", "zookeeper"]
    assert ours.jobs() == []


@pytest.mark.zookeeper
def test_a_client_of_another_authority_or_without_tls_does_not_get_in(secured: Secured, tmp_path: Path) -> None:
    access(secured).jobs()
    stranger = access(secured, Authority(tmp_path / "other"), limit_s=2.0)
    with pytest.raises(ZooKeeperUnavailable), stranger.store("shop"):
        pass
    plain = ZooKeeperAccess.of(ZooKeeperConf(hosts=secured.address, reach_limit_s=2.0))
    with pytest.raises(ZooKeeperUnavailable), plain.store("shop"):
        pass


@pytest.mark.zookeeper
def test_a_server_of_another_authority_is_not_believed(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    certificate, key = secured.authority.certify("client")
    conf = ZooKeeperConf(
        hosts=secured.address, reach_limit_s=2.0, ssl_ca_file=str(other.file),
        ssl_certificate_file=str(certificate), ssl_key_file=str(key),
    )  # fmt: skip
    with pytest.raises(ZooKeeperUnavailable, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed") as caught:
        ZooKeeperAccess.of(conf).jobs()
    assert "the files for TLS" in caught.value.way_out


@pytest.mark.zookeeper
def test_a_server_of_another_name_is_not_believed(tmp_path: Path) -> None:
    with (
        contextmanager(started)(tmp_path / "wrong", "127.0.0.2") as wrong,
        pytest.raises(ZooKeeperUnavailable, match="IP address mismatch"),
    ):
        access(wrong, limit_s=2.0).jobs()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl_key_file": "key.pem"}, "ssl_ca_file is not set"),
        ({"ssl_ca_file": "ca.pem", "ssl_key_file": "key.pem"}, "ssl_certificate_file is not set"),
        ({"ssl_ca_file": "ca.pem", "ssl_certificate_file": "cert.pem"}, "ssl_key_file is not set"),
        ({"ssl_ca_file": "/no/such/file"}, "files for TLS cannot be used"),
    ],
)
def test_files_that_cannot_be_used_are_refused_before_a_start(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfError, match=said):
        ZooKeeperAccess.of(ZooKeeperConf(**given))

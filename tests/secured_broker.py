"""A broker that its clients reach under TLS, log in to by SCRAM, and that allows them nothing by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authority import Authority
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.conftest import Kafka
from tests.waiting import HANGS_S, wait_until

from lowtide.embedded import EmbeddedServices
from lowtide.embedded.ports import HOST, free_port

USER, PASSWORD = "job", "tide and ebb"


@dataclass(frozen=True)
class SecuredBroker(Kafka):
    """The broker; its first listener, in the clear, is for itself and the tests, who may do everything.

    Attributes:
        login: What a conf says to come by the other listener, as a user who may do nothing yet.
    """

    login: Mapping[str, str]


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Start the broker, and stop it after the block."""
    authority = Authority(folder / "certificates")
    authority.certify("server")
    (folder / "password").write_text(PASSWORD)
    port = free_port()
    login = free_port(other_than=[port])
    settings = _settings(authority, port, login)
    with EmbeddedServices(folder / "services", only=["kafka"], kafka_port=port, kafka_settings=settings) as services:
        admin: Any = AdminClient({"bootstrap.servers": services.kafka, "log_level": 0})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())], request_timeout=HANGS_S
        )[USER].result()
        wait_until(
            lambda: admin.describe_user_scram_credentials([USER])[USER].result().scram_credential_infos,
            HANGS_S,
            "the broker knows the user",
        )
        said = {
            "bootstrap_servers": f"{HOST}:{login}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": USER,
            "sasl_password_file": str(folder / "password"),
            "ssl_ca_file": str(authority.file),
        }
        yield SecuredBroker(services, {f"kafka.{key}": value for key, value in said.items()})


def _settings(authority: Authority, port: int, login: int) -> dict[str, str]:
    controller = free_port(other_than=[port, login])
    listeners = f"CLIENT://{HOST}:{port},LOGIN://{HOST}:{login}"
    return {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,LOGIN:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.login.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.login.ssl.keystore.type": "PEM",
        "listener.name.login.ssl.keystore.location": str(authority.folder / "server.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }

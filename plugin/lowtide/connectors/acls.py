"""Kafka's ACLs: who may do what with which topics, groups and transactional ids."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import LoginRefused
from lowtide.errors import LowtideError, ServiceUnavailable


class AclRefused(LowtideError):
    """Log in as a user that may alter the cluster, whose brokers have an authorizer."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Acl:
    """A permission: what may be done with a resource, or with all whose names begin so.

    Attributes:
        resource: `topic`, `group` or `transactional-id`.
        name: The resource's name, or what the names of several begin with.
        operations: What may be done with it, as Kafka calls it: `Read`, `Write`, `Describe`, `DescribeConfigs`, `All`.
        prefixed: Whether it is for all names that begin so.
    """

    resource: str
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False

    def command(self, kafka: KafkaConf, user: str) -> str:
        """Return the `kafka-acls` command that makes it; admin.properties says there how the admin logs in."""
        operations = [word for each in self.operations for word in ("--operation", each)]
        pattern = ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        words = ["kafka-acls", "--bootstrap-server", kafka.bootstrap_servers, "--command-config", "admin.properties"]
        words += ["--add", "--allow-principal", f"User:{user}", *operations, f"--{self.resource}", self.name, *pattern]
        return shlex.join(words)


def allow(kafka: KafkaConf, user: str, acls: Iterable[Acl]) -> None:
    """Make ACLs for a user, on all hosts; those that are there stay.

    Args:
        kafka: The cluster, and the login of somebody who may alter it.
        user: Who is allowed, as brokers know it: of SCRAM the user's name.
        acls: What it is allowed.

    Raises:
        AclRefused: the brokers do not take one.
        LoginRefused: they do not take the login.
        ServiceUnavailable: none answered in time.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional-id": ResourceType.TRANSACTIONAL_ID,
    }
    bindings = [
        AclBinding(
            kinds[acl.resource],
            acl.name,
            ResourcePatternType.PREFIXED if acl.prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[_constant(operation)],
            AclPermissionType.ALLOW,
        )
        for acl in acls
        for operation in acl.operations
    ]
    refusals: list[str] = []

    def heard(error: Any) -> None:
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:
            refusals.append(error.str())

    limit_s = kafka.reach_limit_ms / 1000
    settings: dict[str, Any] = {**librdkafka_settings(kafka), "log_level": 0, "error_cb": heard}
    client = AdminClient(settings)
    where = f"Kafka at {kafka.bootstrap_servers} ([kafka].bootstrap_servers)"
    for future in client.create_acls(bindings, request_timeout=limit_s).values():
        try:
            future.result()
        except KafkaException as caught:
            error = caught.args[0]
            client.poll(0)
            if refusals:
                way_out = "correct security_protocol, sasl_* and ssl_* in [kafka]: `lowtide doctor` tests them"
                raise LoginRefused(f"Kafka refuses the login: {refusals[0]}", where=where, way_out=way_out) from caught
            if error.code() < 0:
                way_out = "start it (`lowtide up` for the embedded one), or correct the address"
                raise ServiceUnavailable(
                    f"no Kafka broker answers within {limit_s:g} s", where=where, way_out=way_out
                ) from caught
            way_out = "log in as a user that may alter the cluster; brokers need an authorizer, as Amazon MSK's have"
            raise AclRefused(f"Kafka makes no ACLs: {error.str()}", where=where, way_out=way_out) from caught


def _constant(operation: str) -> str:
    """Return an operation's name as the client has it: DescribeConfigs is DESCRIBE_CONFIGS."""
    return "".join(
        f"_{letter}" if letter.isupper() and place else letter for place, letter in enumerate(operation)
    ).upper()

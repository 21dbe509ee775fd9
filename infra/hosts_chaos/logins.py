"""Logins that fail: a job of its own tries each, and has to report it clearly."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cluster_job import ClusterJob, JobFailed

LIMIT_S = 300.0


@dataclass(frozen=True)
class Login:
    """A wrong login.

    Attributes:
        what: The fault in it.
        prepare: A shell command that prepares it, on the driver's host.
        settings: The keys of the conf that name it.
        says: A pattern of the expected error.
    """

    what: str
    prepare: str
    settings: tuple[str, ...]
    says: str


LOGINS = (
    Login(
        "Kafka's password",
        "echo wrong > /tmp/wrong",
        ("kafka.sasl_password_file=/tmp/wrong",),
        "refuses the job's login: .*(?i:authentication)",
    ),
    Login(
        "the authority of Kafka's certificates",
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=nobody -days 1 -keyout /tmp/no.key -out /tmp/no.pem 2>&1",
        ("kafka.ssl_ca_file=/tmp/no.pem",),
        "refuses the job's login: .*certificate",
    ),
    Login(
        "the job's password in ZooKeeper",
        "echo lowtide:wrong > /tmp/wrong-zookeeper",
        ("zookeeper.auth_file=/tmp/wrong-zookeeper",),
        r"(?i)zookeeper.*(password|auth|allow|permission|refus)|(password|auth|allow|permission|refus).*zookeeper",
    ),
)


def refused(job: ClusterJob, login: Login, *given: str) -> str:
    """Start the job with its usual settings and a wrong login; return the error that it ends with.

    Raises:
        JobFailed: it started, or its error does not name the fault.
    """
    job.command(login.prepare)
    try:
        job.start(*given, *login.settings, limit_s=LIMIT_S)
    except JobFailed as error:
        said = str(error)
        if not re.search(login.says, said, re.DOTALL):
            raise JobFailed(f"{login.what} is wrong, and the error does not say so: {said}") from error
        return said[said.find("error:") :]
    job.stop()
    raise JobFailed(f"{login.what} is wrong, and the job runs")

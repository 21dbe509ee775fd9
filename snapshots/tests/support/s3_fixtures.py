"""The fixtures of tests that need a real S3 server; moto takes its place where S3=moto is in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from s3_server import ENVIRONMENT, S3Server, S3ServerMissing


@pytest.fixture(name="s3_server", scope="session")
def _s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    pytest.importorskip("boto3", reason="boto3 is an extra")
    try:
        with S3Server(tmp_path_factory.mktemp("s3") / "server") as server:
            yield server
    except S3ServerMissing as error:
        pytest.fail(str(error))


@pytest.fixture(scope="module")
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """A real S3 server, and its credentials in the environment; moto instead where S3=moto is there."""
    with pytest.MonkeyPatch.context() as environment:
        for name in list(os.environ):
            if name.startswith("AWS_"):
                environment.delenv(name)
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
        yield s3_server


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """An empty bucket that no other test has."""
    return s3.make_bucket()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Says where S3 was no real server, after all that others have to say."""
    yield
    ran = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call" and "s3" in report.keywords
    ]
    if ran and os.environ.get("S3") == "moto":
        terminalreporter.section("S3=moto", yellow=True)
        terminalreporter.line(
            f"{len(ran)} tests of S3 ran against moto, not against a real S3 server (make s3-server, with Go)"
        )

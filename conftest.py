"""What the tests of every folder may use, and what is said at their end."""

from collections.abc import Iterator

import pytest

pytest_plugins = ["s3_fixtures"]


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    """Names what a run of all tests leaves out."""
    yield
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS
    if not (chosen or config.option.markexpr or config.option.keyword):
        terminalreporter.section("not part of this run")
        terminalreporter.line(
            "make chaos KILLS=20: a job under load, killed and cut off by a schedule, every byte judged"
        )

"""What the tests of every folder may use, what they may take in time, and what is said at their end."""

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

pytest_plugins = ["s3_fixtures", "services_fixtures"]

UNIT = "unit"
KNOWN_AHEAD = 2
NO_BROWSER = "there is no Chromium here, install it with `make chromium`"
NO_PROMTOOL = "there is no promtool here, build it with `make promtool`"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the setting `budgets`, and the option that has them fail a run."""
    parser.addini("budgets", "seconds that all tests of a marker may take together: `marker: seconds`", type="linelist")
    parser.addoption("--hold-budgets", action="store_true", help="fail a run whose tests take more than `budgets`")


def pytest_configure(config: pytest.Config) -> None:
    """Watches over a run of all tests, whose JVMs live too short for the better of Java's compilers to pay."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    part = config.args_source is pytest.Config.ArgsSource.ARGS or config.option.markexpr or config.option.keyword
    if not part and not hasattr(config, "workerinput"):
        pairs = (line.partition(":") for line in config.getini("budgets"))
        seconds = {name.strip(): float(limit_s) for name, _, limit_s in pairs}
        config.pluginmanager.register(Budgets(seconds, hold=config.option.hold_budgets))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives out tests with Spark one by one, and all others by file.

    A test with Spark waits more than it works, so that several run at once on two cores; one process leaves them to the
    others as long as there is anything else to do.
    """
    from xdist.scheduler import LoadScopeScheduling

    class SparkFirst(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return nodeid if is_alone(config.rootpath / file) else file

        def _assign_work_unit(self, node: Any) -> None:
            wanted = node is not self.nodes[-1]
            scope = next((scope for scope in self.workqueue if self._has_spark(scope) == wanted), None)
            if scope is not None:
                self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

        def _has_spark(self, scope: str) -> bool:
            return uses_spark(config.rootpath / scope.partition("::")[0])

        def _reschedule(self, node: Any) -> None:
            # A test begins when its process knows the next one: one more than that would wait for a long one.
            if not self.workqueue or self._pending_of(self.assigned_work[node]) < KNOWN_AHEAD:
                super()._reschedule(node)

    return SparkFirst(config, log)


@cache
def uses_spark(file: Path) -> bool:
    """Returns whether a file has tests with Spark: whoever gives them out knows their names only."""
    return "pytest.mark.spark" in file.read_text()


@cache
def is_alone(file: Path) -> bool:
    """Returns whether each test of a file may run in any process: they take long and share nothing of their own."""
    return uses_spark(file) and 'scope="module"' not in file.read_text()


class Budgets:
    """Counts seconds by marker, and says which marker's tests took too many.

    These are seconds of the clock, as most of the work is done by JVMs and brokers that outlive a test: a machine that
    is busy with other things needs more of them. So they fail a run only where somebody asks for it.

    Args:
        seconds: by marker; a test counts for the first that it has.
        hold: Fail a run that took too many.
    """

    def __init__(self, seconds: dict[str, float], *, hold: bool) -> None:
        self._budgets = seconds
        self._hold = hold
        self._took: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a test's setup, call or end."""
        group = next((name for name in self._budgets if name in report.keywords), UNIT)
        self._took[group] += report.duration  # type: ignore[assignment]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails a run that has passed otherwise, if budgets are to hold."""
        if self._hold and self._over() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says where the time went, and names what a run of all tests leaves out."""
        terminalreporter.section("time by marker", yellow=bool(self._over()))
        for group, budget_s in self._budgets.items():
            over = "   OVER ITS BUDGET: if --hold-budgets fails on a quiet machine too, make these tests faster"
            line = f"{group:10} {self._took[group]:6.0f} s of {budget_s:.0f} s"
            terminalreporter.line(line + over * (group in self._over()))
        skipped = terminalreporter.stats.get("skipped", [])
        unseen = sum(NO_BROWSER in str(report.longrepr) for report in skipped)
        if unseen:
            terminalreporter.section("no browser", yellow=True)
            terminalreporter.line(f"{unseen} tests of the page were left out: {NO_BROWSER}")
        terminalreporter.section("not part of this run")
        if any(NO_PROMTOOL in str(report.longrepr) for report in skipped):
            terminalreporter.line("make alerts-check: the alert rules, evaluated by Prometheus' promtool")
        if terminalreporter.config.option.ignore:
            terminalreporter.line("make test-airflow: the DAGs, the page and deaths under a real Airflow")
        terminalreporter.line(
            "make chaos KILLS=20: a job under load, killed and cut off by a schedule, every byte judged"
        )

    def _over(self) -> list[str]:
        return [group for group, budget_s in self._budgets.items() if self._took[group] > budget_s]

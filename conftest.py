"""Fixtures for the tests of every folder, budgets, what a run leaves out, and its last words."""

import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

pytest_plugins = [
    "services_fixtures",
    "s3_fixtures",
    "azure_fixtures",
    "snapshots_fixtures",
    "tracker_fixtures",
    "life_fixtures",
    "provider_fixtures",
]

UNIT = "unit"
KNOWN_AHEAD = 2
CPU_S = "cpu_s"
LEFT_OUT = "left_out"
NIGHTLY_HANGS_S = 3_600
OF_ALL = "of_all"
BEGAN_S = pytest.StashKey[float]()
NO_BROWSER = "there is no Chromium here, install it with `make chromium`"
NO_POSTGRES = "there is no PostgreSQL here, install it with `make postgres`"
NO_REDIS = "there is no Redis here, install it with `make redis`"
NO_AZURITE = "there is no Azurite here, install it with `make azurite`"
NO_PROMTOOL = "there is no promtool here, build it with `make promtool`"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the setting `budgets`, and the option that has them fail a run."""
    help_text = "seconds of CPU that all tests of a marker may take together: `marker: seconds`"
    parser.addini("budgets", help_text, type="linelist")
    parser.addoption("--hold-budgets", action="store_true", help="fail a run whose tests take more than `budgets`")


def pytest_configure(config: pytest.Config) -> None:
    """Watches over a run of all tests, whose JVMs live too short for the better of Java's compilers to pay."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    if is_of_all(config) and not hasattr(config, "workerinput"):
        pairs = (line.partition(":") for line in config.getini("budgets"))
        seconds = {name.strip(): float(limit_s) for name, _, limit_s in pairs}
        config.pluginmanager.register(Budgets(seconds, hold=config.option.hold_budgets))


@pytest.fixture(autouse=True)
def _own_path() -> Iterator[None]:
    """Forget folders that flows were loaded from: processes that later tests start would find modules there."""
    before = sys.path.copy()
    yield
    sys.path[:] = before


def is_of_all(config: pytest.Config) -> bool:
    """Returns whether a run is of all tests, and of none that somebody has chosen."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput[OF_ALL])
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS or config.option.markexpr or config.option.keyword
    return not chosen


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a process what run it is part of, of which it sees no more than the arguments."""
    node.workerinput[OF_ALL] = is_of_all(node.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves nightly tests out of a run of all, and gives them longer elsewhere until they count as hanging."""
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    for item in nightly:
        item.add_marker(pytest.mark.timeout(NIGHTLY_HANGS_S))
    if not is_of_all(config):
        return
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=nightly)
    if hasattr(config, "workeroutput"):
        config.workeroutput[LEFT_OUT] = [item.nodeid for item in nightly]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Begins to count a test's CPU."""
    item.stash[BEGAN_S] = cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Tells a test's CPU with its last report."""
    try:
        return (yield)
    finally:
        # A process that died has taken those below it, which have another parent now, out of the sum.
        item.user_properties.append((CPU_S, max(0.0, cpu_s() - item.stash[BEGAN_S])))


def cpu_s() -> float:
    """Returns the CPU that this process has taken, and all below it, those that have ended as well."""
    ended = os.times()
    ticks = sum(ticks_of(pid) for pid in below(os.getpid()))
    return time.process_time() + ended.children_user + ended.children_system + ticks / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> Iterator[int]:
    """Yields the processes that a process has started, and those that they have started."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from below(child)


def ticks_of(pid: int) -> int:
    """Returns a process's CPU, and that of its children that have ended."""
    try:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    except OSError:
        return 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives out tests with Spark one by one, and all others by file.

    A test with Spark waits more than it works, so that several run at once on two cores; one process leaves them to the
    others as long as there is anything else to do.
    """
    from xdist.scheduler import LoadScopeScheduling

    class SparkFirst(LoadScopeScheduling):  # type: ignore[misc]
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
            given = self.assigned_work[node]
            while self.workqueue and not node.shutting_down and self._pending_of(given) < KNOWN_AHEAD:
                self._assign_work_unit(node)
            if not self.workqueue:
                super()._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            # xdist gives out all that the process has ever had: who gets a file whose tests are done waits for ever.
            running, left = open_of(self.assigned_work.pop(node))
            self.workqueue.update(left)
            for other in self.nodes:
                self._reschedule(other)
            return running

    return SparkFirst(config, log)


def open_of(given: dict[str, dict[str, bool]]) -> tuple[str | None, dict[str, dict[str, bool]]]:
    """Returns the test at which a process stands, if any, and the tests after it, by what they were given out with.

    Args:
        given: by the same, whether each test is done.
    """
    rest = [(scope, test) for scope, tests in given.items() for test, done in tests.items() if not done]
    after: dict[str, dict[str, bool]] = {}
    for scope, test in rest[1:]:
        after.setdefault(scope, {})[test] = False
    return (rest[0][1] if rest else None), after


@cache
def uses_spark(file: Path) -> bool:
    """Returns whether a file has tests with Spark: xdist's controller knows their names only."""
    return "pytest.mark.spark" in file.read_text()


@cache
def is_alone(file: Path) -> bool:
    """Returns whether each test of a file may run in any process: they take long and share nothing of their own."""
    return uses_spark(file) and 'scope="module"' not in file.read_text()


class Budgets:
    """Counts seconds of CPU by marker, and says which marker's tests took too many.

    Brokers and JVMs that outlive a test count for those during which they worked. Machines differ by 2x, so that a run
    fails only where somebody asks for it.

    Args:
        seconds: by marker; a test counts for the first that it has.
        hold: Fail a run that took too many.
    """

    def __init__(self, seconds: dict[str, float], *, hold: bool) -> None:
        self._budgets = seconds
        self._hold = hold
        self._took = defaultdict[str, float](float)
        self._left_out: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a test."""
        group = next((name for name in self._budgets if name in report.keywords), UNIT)
        if report.when == "teardown":
            self._took[group] += sum(
                took for name, took in report.user_properties if name == CPU_S and isinstance(took, float)
            )

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Keeps what a run leaves out."""
        self._left_out += [item.nodeid for item in items]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Keeps what a process has left out: all have the same."""
        # One that was killed has said nothing.
        self._left_out = getattr(node, "workeroutput", {}).get(LEFT_OUT, self._left_out)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails a run that has passed otherwise, if budgets are to hold."""
        if self._hold and self._over() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says where the time went, and names what a run of all tests leaves out."""
        terminalreporter.section("CPU by marker", yellow=bool(self._over()))
        for group, budget_s in self._budgets.items():
            over = "   OVER ITS BUDGET: make these tests cheaper"
            line = f"{group:10} {self._took[group]:6.0f} s of {budget_s:.0f} s"
            terminalreporter.line(line + over * (group in self._over()))
        skipped = terminalreporter.stats.get("skipped", [])
        unseen = sum(NO_BROWSER in str(report.longrepr) for report in skipped)
        if unseen:
            terminalreporter.section("no browser", yellow=True)
            terminalreporter.line(f"{unseen} tests of the page were left out: {NO_BROWSER}")
        for server, reason in (("PostgreSQL", NO_POSTGRES), ("Redis", NO_REDIS), ("Azure", NO_AZURITE)):
            if unasked := sum(reason in str(report.longrepr) for report in skipped):
                terminalreporter.section(f"no {server}", yellow=True)
                terminalreporter.line(f"{unasked} tests of {server} were left out: {reason}")
        terminalreporter.section("not part of this run")
        if self._left_out:
            terminalreporter.line(f"make test-nightly: {len(self._left_out)} tests whose laws cheaper ones hold too")
        for test, count in Counter(test.partition("[")[0] for test in self._left_out).items():
            terminalreporter.line(f"    {test}" + f" ({count} of them)" * (count > 1))
        if any(NO_PROMTOOL in str(report.longrepr) for report in skipped):
            terminalreporter.line("make alerts-check: the alert rules, evaluated by Prometheus' promtool")
        if terminalreporter.config.option.ignore:
            terminalreporter.line("make test-airflow: the DAGs, the page and deaths under a real Airflow")
        terminalreporter.line(
            "make chaos KILLS=20: a job under load, killed and cut off by a schedule, every byte judged"
        )

    def _over(self) -> list[str]:
        return [group for group, budget_s in self._budgets.items() if self._took[group] > budget_s]

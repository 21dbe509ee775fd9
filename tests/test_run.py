"""`lowtide run`, `status`, `stop` and spark-submit, on real Kafka and real Spark; nothing is left of a job."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import HANGS_S

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MARK = "LOWTIDE_TEST_RUN"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FLOW = """
from dataclasses import dataclass

import lowtide as lt
from lowtide import Flow, json, kafka


@dataclass(frozen=True)
class Order:
    user: str
    number: int


def handle(order: Order) -> Order:
    if order.number < 0:
        raise ValueError(f"{{order.user}} owes us")
    if order.number == MARK:
        print("number", order.number, order.user)
    return order


flow = Flow("{job}")
MARK = flow.parameter("mark", 0)
source = flow.read("orders", kafka("{source}", json(Order){stop}))
source.key_by("user").map(handle).write("out", kafka("{sink}", json(Order), key="user"))

if __name__ == "__main__":
    lt.main(flow)
"""


@dataclass
class Place:
    """A folder with a flow, its topics and a conf; and all processes that are started in it."""

    kafka: Any
    zookeeper: str
    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.job = f"orders-{self.mark[:8]}"

    def prepare(self) -> None:
        self.source, self.sink = self.kafka.topic("orders", 2), self.kafka.topic("out", 2)
        self.write_flow(self.source)
        conf = f'[kafka]\nbootstrap_servers = "{self.kafka.address}"\n[zookeeper]\nhosts = "{self.zookeeper}"\n'
        conf += "[epoch]\nduration_s = 5.0\n[job]\nstop_limit_s = 20.0\nrestarts = 0\n"
        conf += f"start_limit_s = {HANGS_S}\n[worker]\nstart_limit_s = {HANGS_S}\n"
        (self.folder / "lowtide.toml").write_text(conf)

    def write_flow(self, source: str, stop: str = "") -> None:
        flow = FLOW.format(job=self.job, source=source, sink=self.sink, stop=stop)
        (self.folder / "flow.py").write_text(flow)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a program; its JVMs compile quickly rather than well, as they live for seconds."""
        known = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_PYTHON", "SPARK_HOME")}
        process = subprocess.Popen(
            [*command, "--conf", "lowtide.toml"],
            cwd=self.folder,
            env={**known, MARK: self.mark, "JAVA_TOOL_OPTIONS": QUICK_JVM, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"said-{len(self.started)}").open("w"),
            text=True,
            process_group=0,
        )
        self.started.append(process)
        return process

    def lowtide(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-m", "lowtide.cli", *arguments, **environment)

    def said(self, process: subprocess.Popen[str]) -> str:
        return (self.folder / f"said-{self.started.index(process)}").read_text()

    def ended(self, process: subprocess.Popen[str], within_s: float = HANGS_S) -> int:
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it has not ended: {self.said(process)}\n{self.log()}")

    def until_ready(self, process: subprocess.Popen[str]) -> None:
        until(lambda: "ready after" in self.said(process) or process.poll() is not None, HANGS_S)
        assert "ready after" in self.said(process), self.said(process) + self.log()

    def log(self) -> str:
        file = self.folder / ".lowtide/jobs" / self.job / "job.log"
        return "".join(file.read_text(errors="replace")[-4000:]) if file.exists() else ""

    def prints(self, number: int) -> bool:
        """True if the log has what the flow prints of the record that its parameter names."""
        log = (self.folder / ".lowtide/jobs" / self.job / "job.log").read_text(errors="replace")
        line = rf"^[\d-]+ [\d:,]+ lowtide worker 1/\d \d+ INFO: number {number} u{number % 5}$"
        return re.search(line, log, re.MULTILINE) is not None

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / ".lowtide/jobs" / self.job / "state.json").read_text())
        return state

    def status(self) -> dict[str, Any]:
        asked = self.lowtide("status", self.job, "--json")
        reported, _ = asked.communicate(timeout=HANGS_S)
        assert asked.returncode == 0, self.said(asked)
        status: dict[str, Any] = json.loads(reported)[0]
        return status

    def processes(self) -> dict[int, str]:
        """All processes that were started here, and those that they have started, but not those that have ended."""
        found = {}
        for entry in os.scandir("/proc"):
            try:
                if entry.name.isdecimal() and f"{MARK}={self.mark}".encode() in Path(entry, "environ").read_bytes():
                    command = Path(entry, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if command:
                        found[int(entry.name)] = command
            except OSError:
                continue
        return found

    def one(self, what: str) -> int:
        found = [pid for pid, command in self.processes().items() if what in command]
        assert len(found) == 1, (what, self.processes())
        return found[0]

    def none_left(self, within_s: float = HANGS_S) -> None:
        for process in self.started:
            process.poll()
        until(lambda: not self.processes(), within_s)
        assert self.processes() == {}

    def pass_through(self, count: int) -> None:
        """Records written now come out, as many as there were."""
        before = len(self.kafka.records(self.sink))
        for partition in range(2):
            records = ({"user": f"u{number % 5}", "number": number} for number in range(count // 2))
            self.kafka.produce(self.source, records, partition)
        assert len(self.kafka.records(self.sink, before + count)) == before + count


def until(true: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.fixture(name="new_place")
def _new_place(kafka: Any, zookeeper: str, tmp_path: Path) -> Iterator[Callable[[], Place]]:
    """Makes places: jobs that are started together are ready sooner than one after the other."""
    places: list[Place] = []

    def make() -> Place:
        folder = tmp_path / f"place-{len(places)}"
        folder.mkdir()
        places.append(Place(kafka, zookeeper, folder))
        places[-1].prepare()
        return places[-1]

    yield make
    for place in places:
        for pid in place.processes():
            os.kill(pid, signal.SIGKILL)
        for process in place.started:
            process.wait(HANGS_S)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(name="place")
def _place(new_place: Callable[[], Place]) -> Place:
    return new_place()


def test_a_job_runs_in_the_foreground_or_detached_until_it_is_asked_to_stop(new_place: Callable[[], Place]) -> None:
    front, behind = new_place(), new_place()
    run = front.lowtide("run", "flow.py")
    detached = behind.lowtide("run", "flow.py", "--detach", "--json", "--set", "job.parameters.mark=17")
    front.until_ready(run)
    assert behind.ended(detached) == 0, behind.said(detached) + behind.log()
    watch(front, run)
    assert detached.stdout is not None
    assert json.loads(detached.stdout.read())["phase"] == "running"
    behind.pass_through(100)
    until(lambda: behind.prints(17), HANGS_S)
    assert behind.prints(17), behind.log()
    stop_twice(behind)


def test_a_job_whose_sources_end_ends_with_0_and_is_finished(place: Place) -> None:
    place.write_flow(place.source, stop=', stop="now"')
    records = [{"user": f"u{number % 5}", "number": number} for number in range(200)]
    place.kafka.produce(place.source, records, 0)
    run = place.lowtide("run", "flow.py")
    assert place.ended(run) == 0, place.said(run) + place.log()
    assert "finished: all its sources have ended, and everything is delivered" in place.said(run)
    assert len(place.kafka.records(place.sink, 200)) == 200
    status = place.status()
    assert (status["phase"], status["exit_code"], status["cause"]["kind"]) == ("finished", 0, "stop")
    place.none_left()
    place.kafka.produce(place.source, records, 0)
    again = place.lowtide("run", "flow.py")
    assert place.ended(again) == 0, place.said(again) + place.log()
    assert len(place.kafka.records(place.sink, 200)) == 200, "what came after the stop is not read"


def asked_as_the_manual_says(address: str, token: str, certificate: Path) -> None:
    """By a program that knows nothing of Lowtide: over HTTPS, with the certificate in the job's folder."""
    shown = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"https://{address}/metrics", headers=shown)
    tls = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(request, timeout=HANGS_S, context=tls) as answer:
        reported = answer.read()
        assert re.search(rb"\nlowtide_running\{[^}]*\} 1\.0\n", reported)
        assert re.search(rb"\nlowtide_tracker_flushes_total\{[^}]*\} [1-9]", reported)
        assert re.search(
            rb'\nlowtide_worker_tracker_messages_total\{direction="out",[^}]*worker="[^"]+"\} [1-9]', reported
        )
    request = urllib.request.Request(f"https://{address}/api/log?lines=3", headers=shown)
    with urllib.request.urlopen(request, timeout=HANGS_S, context=tls) as answer:
        log = json.loads(answer.read())
        assert log["file"] == str(certificate.with_name("job.log"))
        assert log["lines"]


def watch(place: Place, run: subprocess.Popen[str]) -> None:
    """A job in the foreground: what status says of it, that it runs once, and that SIGTERM leaves nothing of it."""
    place.pass_through(200)
    until(lambda: (place.status()["figures"] or {}).get("records_in") == 200, HANGS_S)
    status = place.status()
    assert (status["phase"], status["runner"]["pid"]) == ("running", run.pid)
    assert status["figures"] == {
        "records_in": 200, "records_out": 200, "dead_letters": 0, "workers": 4, "executors": 1,
    }  # fmt: skip
    second = place.start(sys.executable, "flow.py")
    assert place.ended(second) == 4
    assert f'job "{place.job}" runs already, as process {run.pid}' in place.said(second)
    folder = place.folder / ".lowtide/jobs" / place.job
    secret, certificate = folder / "secret", folder / "control.pem"
    assert secret.stat().st_mode & 0o777 == 0o600
    asked_as_the_manual_says(status["control"], (folder / "token").read_text(), certificate)
    files = [each for each in folder.iterdir() if each.is_file()]
    assert [each.name for each in files if b"PRIVATE KEY" in each.read_bytes()] == []
    run.send_signal(signal.SIGTERM)
    assert place.ended(run) == 0
    place.none_left(0)
    assert not secret.exists()
    assert not certificate.exists()
    said = place.said(run)
    assert [word for word in ("WARN", "ERROR", "Exception", "py4j", "\033") if word in said] == []
    assert (place.state()["phase"], place.state()["cause"]["what"]) == ("stopped", "it received SIGTERM")
    assert list((place.folder / ".lowtide/checkpoints").iterdir()) == []


def stop_twice(place: Place) -> None:
    """A detached job: it runs once and has a supervisor; one stop leaves nothing of it, a second finds nothing."""
    second = place.lowtide("run", "flow.py", "--detach")
    assert place.ended(second) == 4
    assert "runs already" in place.said(second)
    assert place.status()["supervisor"]["pid"] == place.one("lowtide.jobs.supervisor")
    stop = place.lowtide("stop")
    assert place.ended(stop) == 0, place.said(stop)
    assert f'job "{place.job}" has stopped' in place.said(stop)
    place.none_left()
    again = place.lowtide("stop", place.job)
    assert place.ended(again) == 4
    assert "does not run" in place.said(again)
    assert place.state()["phase"] == "stopped"


def test_what_the_user_raised_is_reported_with_the_record_and_without_spark(place: Place) -> None:
    place.kafka.produce(place.source, [{"user": "ann", "number": 1}, {"user": "bob", "number": -1}], partition=1)
    run = place.start(sys.executable, "flow.py")
    assert place.ended(run) == 5
    said = place.said(run)
    assert 'error: step "handle": raised ValueError: bob owes us' in said
    assert f"record at {place.source}-1, offset 1: Order(user='bob', number=-1)" in said
    assert f'File "{place.folder}/flow.py", line 16, in handle' in said
    assert [word for word in ("at org.apache", "java.lang", "pyspark", "site-packages") if word in said] == []
    assert "org.apache.spark" in place.log()
    place.none_left(0)
    status = place.status()
    assert (status["phase"], status["exit_code"], status["processes_left"]) == ("failed", 5, 0)
    assert status["cause"]["what"].startswith('step "handle": raised ValueError: bob owes us')


def test_a_detached_job_that_fails_at_its_start_says_why(place: Place) -> None:
    place.write_flow("nowhere")
    run = place.lowtide("run", "flow.py", "--detach")
    assert place.ended(run) == 4
    assert 'error: there is no topic "nowhere"' in place.said(run)
    place.none_left()
    assert place.state()["exit_code"] == 4


def test_nothing_is_left_of_a_job_whose_runner_or_supervisor_is_killed(new_place: Callable[[], Place]) -> None:
    front, unwatched, orphan = new_place(), new_place(), new_place()
    run = front.lowtide("run", "flow.py")
    detached = [(place, place.lowtide("run", "flow.py", "--detach")) for place in (unwatched, orphan)]
    front.until_ready(run)
    for place, starting in detached:
        assert place.ended(starting) == 0, place.said(starting) + place.log()
    run.kill()
    run.wait()
    runner = orphan.state()["runner"]["pid"]
    os.kill(runner, signal.SIGKILL)
    os.kill(unwatched.state()["supervisor"]["pid"], signal.SIGKILL)
    for place in (front, unwatched, orphan):
        place.none_left()
    status = front.status()
    assert (status["phase"], status["cause"]["what"]) == (
        "failed", f"process {run.pid} was killed, or the machine went down",
    )  # fmt: skip
    state = orphan.state()
    assert (state["phase"], state["cause"]["what"]) == (
        "failed",
        f"process {runner}, which ran it, was killed by SIGKILL",
    )
    state = unwatched.state()
    assert (state["phase"], state["cause"]["what"]) == ("failed", "its supervisor was killed, so it stopped")


def test_the_loss_of_the_jvm_the_service_or_an_executor_ends_the_life(new_place: Callable[[], Place]) -> None:
    jvm, service, executor = new_place(), new_place(), new_place()
    cluster = ["--set", "spark.master=local-cluster[2,2,1024]"]
    runs = [(place, place.lowtide("run", "flow.py", *(cluster * (place is executor)))) for place in (
        jvm, service, executor,
    )]  # fmt: skip
    for place, run in runs:
        place.until_ready(run)
    executor.pass_through(50)
    executors = [pid for pid, command in executor.processes().items() if "CoarseGrainedExecutorBackend" in command]
    assert len(executors) == 2
    os.kill(jvm.one("org.apache.spark.deploy.SparkSubmit"), signal.SIGKILL)
    os.kill(service.one("-m lowtide.service "), signal.SIGKILL)
    os.kill(executors[0], signal.SIGKILL)
    for place, run in runs:
        assert place.ended(run) == 5
        assert "at org.apache" not in place.said(run)
        place.none_left(0)
    assert "Spark's JVM is gone" in jvm.said(runs[0][1])
    assert jvm.state()["cause"]["what"].startswith("Spark's JVM is gone")
    assert "Lowtide's service died" in service.said(runs[1][1])
    assert service.state()["cause"]["what"].startswith("Lowtide's service died")
    said = executor.said(runs[2][1])
    assert "died" in said or "is missing" in said or "executor" in said


def test_an_interrupt_while_it_starts_leaves_nothing_and_two_end_it_at_once(new_place: Callable[[], Place]) -> None:
    once, twice = new_place(), new_place()
    runs = [(place, place.lowtide("run", "flow.py")) for place in (once, twice)]
    for place, run in runs:
        until(lambda place=place, run=run: "starting Spark" in place.said(run), HANGS_S)  # type: ignore[misc]
    time.sleep(3)
    (_, single), (_, double) = runs
    single.send_signal(signal.SIGINT)
    double.send_signal(signal.SIGTERM)
    double.send_signal(signal.SIGINT)
    assert twice.ended(double) == 130
    assert "was interrupted twice" in twice.said(double) or twice.state()["phase"] == "stopped"
    twice.none_left()
    assert once.ended(single) == 130
    once.none_left(0)
    assert (once.state()["phase"], once.state()["exit_code"]) == ("stopped", 130)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "kafka.bootstrap_servers=127.0.0.1:9"], "start the embedded one: lowtide up"),
        (["--set", "kafka.bootstrap_servers=127.0.0.1:9", "--set", "embedded.enabled=false"], "start the broker"),
        (["--set", "spark.master=local[3]"], "needs 4 slots at once, Spark has 3"),
    ],
)
def test_bad_surroundings_are_reported_before_spark_starts(place: Place, arguments: list[str], message: str) -> None:
    run = place.lowtide("run", "flow.py", *arguments)
    assert place.ended(run) == 4
    assert message in place.said(run)
    assert "starting Spark" not in place.said(run)
    place.none_left(0)


def test_a_missing_jar_is_reported(place: Place) -> None:
    program = (
        "import lowtide.jars.shim as jar, pathlib, sys; jar.SHIM = pathlib.Path('no.jar')\n"
        "from lowtide.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    run = place.start(sys.executable, "-c", program, "run", "flow.py")
    assert place.ended(run) == 4
    assert "the jar of the Java shim is missing" in place.said(run)
    place.none_left(0)


def test_an_interpreter_without_lowtide_is_reported(place: Place) -> None:
    other = str(Path(sys.base_prefix) / "bin" / "python3")
    run = place.lowtide("run", "flow.py", PYSPARK_PYTHON=other)
    assert place.ended(run) == 4
    assert other in place.said(run)
    assert "lowtide" in place.said(run)
    assert "at org.apache" not in place.said(run)
    place.none_left(0)
    run = place.lowtide("run", "flow.py", PYSPARK_PYTHON="/nowhere/python3")
    assert place.ended(run) == 4
    assert "PYSPARK_PYTHON names /nowhere/python3, which is not an executable" in place.said(run)


def test_spark_submit_runs_the_same_flow(place: Place) -> None:
    folder = Path(sys.executable).parent
    arguments = "$(lowtide submit-args --set spark.master=local[6])"
    # Spark hands on all that the program says as its own standard output.
    program = f'exec spark-submit {arguments} --conf spark.lowtide.job.parameters.mark=18 flow.py "$@" >&2'
    run = place.start("bash", "-c", program, "bash", PATH=f"{folder}:{os.environ['PATH']}")
    place.until_ready(run)
    place.pass_through(50)
    until(lambda: place.prints(18), HANGS_S)
    assert place.prints(18), place.log()
    stop = place.lowtide("stop", place.job)
    assert place.ended(stop) == 0, place.said(stop)
    assert place.ended(run) == 0, place.said(run)
    place.none_left()
    said = place.said(run).partition("ready after")[2]
    words = ("WARN", "ERROR", "Exception", "\tat ")
    assert [line for line in said.splitlines() if any(word in line for word in words)] == []


PLAIN_SESSION = """
from pyspark.sql import SparkSession
from flow import flow
import lowtide as lt

SparkSession.builder.master("local[8]").config("spark.ui.enabled", "false").getOrCreate()
lt.main(flow)
"""
OWN_SESSION = """
import os, sys
from pyspark.sql import SparkSession
from lowtide.conf import Conf
from lowtide.driver.session import launch_settings, settings
from flow import flow
import lowtide as lt

builder = SparkSession.builder
os.environ["PYSPARK_PYTHON"] = sys.executable
for key, value in {**launch_settings(Conf.load()), **settings(Conf.load())}.items():
    builder = builder.config(key, value)
session = builder.appName("mine").getOrCreate()
lt.main(flow)
"""


def test_a_session_without_the_plugin_is_refused(place: Place) -> None:
    (place.folder / "program.py").write_text(PLAIN_SESSION)
    run = place.start(sys.executable, "program.py")
    assert place.ended(run) == 4
    assert "a SparkSession without Lowtide's plugin is already running in this program" in place.said(run)
    place.none_left()


def test_a_session_with_the_plugin_is_taken(place: Place) -> None:
    (place.folder / "program.py").write_text(OWN_SESSION)
    run = place.start(sys.executable, "program.py")
    place.until_ready(run)
    place.pass_through(50)
    run.send_signal(signal.SIGTERM)
    assert place.ended(run) == 0, place.said(run)
    place.none_left(0)


def test_a_signal_to_all_processes_at_once_stops_the_job(place: Place) -> None:
    """As systemd sends it: Spark's JVM and the workers end by it while the job is being stopped."""
    run = place.lowtide("run", "flow.py")
    place.until_ready(run)
    place.pass_through(50)
    os.killpg(run.pid, signal.SIGTERM)
    assert place.ended(run) == 0, place.said(run)
    place.none_left(0)
    assert place.state()["phase"] == "stopped"
    assert place.state()["cause"]["what"].startswith("it received SIGTERM")


def test_a_job_is_stopped_while_kafka_is_down(kafka: Any, zookeeper: str, tmp_path: Path) -> None:
    from lowtide.embedded import EmbeddedServices

    with EmbeddedServices(tmp_path / "services", only=["kafka"]) as services:
        place = Place(type(kafka)(services), zookeeper, tmp_path)
        place.prepare()
        run = place.lowtide("run", "flow.py")
        place.until_ready(run)
    until(lambda: "no Kafka broker answers" in place.said(run), HANGS_S)
    time.sleep(6)
    run.send_signal(signal.SIGTERM)
    assert place.ended(run) == 0, place.said(run) + place.log()
    place.none_left(0)
    assert place.state()["phase"] == "stopped"

"""How each fault is done; what it needs to be reversed is reversed when it is over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.job_program import Program
from tests.shop import Backfill

from lowtide.cli.snapshot_place import opened
from lowtide.errors import LowtideError
from lowtide.status.control_client import ControlClient
from lowtide_snapshots.format.parts import sha256

from .gate import MANIFESTS, PARTS, Trap
from .photographer import viewed
from .processes import of_program, send
from .schedule import Fault
from .stage import Stage, Stuck
from .sweeper import commits_of, damages, swept

MET_WITHIN_S = 90.0
"""Time that a step of a snapshot or of a recovery may take to come."""
BEGUN_WITHIN_S = 240.0
"""Time that a start may take, and what has to come soon after it; a busy machine is slow."""
ZOMBIE_ENDS_WITHIN_S = 120.0
LEAST_STEP_MS = 3 * 60_000
MOST_STEP_MS = {"forward": 5 * 3_600_000, "back": 55 * 60_000}
"""Where a broker's clock is more than `message.timestamp.after.max.ms` behind, an hour, Kafka 4.2 refuses its own
transaction markers and never writes them again: such a transaction stays open until the broker is restarted.
"""
POLL_S = 0.02
TAKEOVER_STEPS = 8
"""A take-over has about so many steps that it says."""
BACKFILL_FROM = 100_000_000
"""The number of a backfill's first order."""
MOST_BACKFILLED = 10_000

Settle = Callable[[], object]


def do(stage: Stage, fault: Fault, settle: Settle) -> None:
    """Do one fault; returns when it is over.

    Args:
        stage: To whom.
        fault: What.
        settle: Waits until the present program delivers what is written now.

    Raises:
        Stuck: what it needs did not come.
    """
    kind = fault.kind
    if kind == "zombie":
        _zombie(stage, fault, settle)
    elif kind.startswith("pause-"):
        with stage.standing([stage.pid(fault.victim, fault.which)], fault.victim):
            time.sleep(fault.lasts_s)
    elif kind.startswith("s3-"):
        _bad_weather(stage, fault)
    elif kind in WAYS:
        WAYS[kind](stage, fault)
    elif kind in ("kafka", "zookeeper"):
        _outage(stage, kind, fault)
    else:
        stage.kill(fault.victim, fault.which)


def _await(stage: Stage, trap: Trap, *, between: Callable[[], object] = lambda: None) -> None:
    """Wait until a step has come and was hit."""
    deadline = time.monotonic() + MET_WITHIN_S
    while not trap.sprung.wait(0.2):
        if time.monotonic() > deadline:
            stage.gate.unset()
            raise Stuck(f"the step did not come within {MET_WITHIN_S:g} s")
        between()
    if trap.error is not None:
        raise trap.error


def _put(where: str) -> Callable[[str], bool]:
    return lambda request: request.startswith("PUT ") and where in request


# -- steps of a snapshot and of its commit -----------------------------------------------------------------------------


def _at_request(stage: Stage, fault: Fault) -> None:
    client = stage.client()
    try:
        if client is not None:
            client.take_snapshot()
    except LowtideError as error:
        raise Stuck(f"no snapshot could be asked for: {error}") from error
    time.sleep(fault.lasts_s)
    stage.kill(fault.victim, fault.which)


def _at_part(stage: Stage, fault: Fault) -> None:
    trap = Trap(_put(PARTS), lambda: stage.kill(fault.victim, fault.which), fault.nth)
    _await(stage, stage.gate.set(trap))


def _at_seal(stage: Stage, fault: Fault) -> None:
    act = lambda: stage.kill(fault.victim, fault.which)  # noqa: E731
    _await(stage, stage.gate.set(Trap(_put(MANIFESTS), act, applied=fault.variant == "after")))


def _at_commit(stage: Stage, fault: Fault) -> None:
    """The commit is on its way to a ZooKeeper that stands still; who sent it is dead when it is done."""
    zookeeper = stage.services.pid("zookeeper")
    assert zookeeper is not None
    with ExitStack() as held:
        stand = lambda: held.enter_context(stage.standing([zookeeper], "zookeeper"))  # noqa: E731
        _await(stage, stage.gate.set(Trap(_put(MANIFESTS), stand, applied=True)))
        time.sleep(fault.lasts_s)
        stage.kill(fault.victim, fault.which)
        time.sleep(0.2)


def _after_commit(stage: Stage, fault: Fault) -> None:
    """Once a commit is known, and nothing that follows it is done."""
    deadline = time.monotonic() + MET_WITHIN_S
    while time.monotonic() < deadline:
        client = stage.client()
        try:
            view = None if client is None else client.take_snapshot()
            while client is not None and view is not None and view.phase in ("taking", "sealed"):
                time.sleep(POLL_S)
                view = viewed(client, view.id)
        except LowtideError:
            view = None
        if view is not None and view.phase == "committed":
            stage.kill(fault.victim, fault.which)
            return
        time.sleep(0.5)
    raise Stuck(f"nothing was committed within {MET_WITHIN_S:g} s")


def _zookeeper_at_commit(stage: Stage, fault: Fault) -> None:
    """ZooKeeper is killed between seal and commit: whether it is committed may not be known."""
    stop = lambda: stage.services.stop("zookeeper", grace_s=0)  # noqa: E731
    _await(stage, stage.gate.set(Trap(_put(MANIFESTS), stop, applied=True)))
    time.sleep(fault.lasts_s)
    stage.services.start("zookeeper")


# -- steps of a recovery -----------------------------------------------------------------------------------------------


def _at_verify(stage: Stage, fault: Fault) -> None:
    _in_recovery(stage, fault, ("looking", "verifying"))


def _at_load(stage: Stage, fault: Fault) -> None:
    _in_recovery(stage, fault, ("starting the query", "waiting for the workers"))


def _in_recovery(stage: Stage, fault: Fault, steps: tuple[str, ...]) -> None:
    """Kill a worker, and somebody when so many parts have been asked for in these steps of the recovery."""

    def matches(request: str) -> bool:
        state = stage.state()
        return request.startswith("GET ") and PARTS in request and state is not None and state.step.startswith(steps)

    trap = stage.gate.set(Trap(matches, lambda: stage.kill(fault.victim, fault.which), fault.nth))
    stage.kill("worker", fault.which)
    _await(stage, trap, between=stage.revive)


def _under_s3(stage: Stage, fault: Fault) -> None:
    stage.gate.weather(fault.variant, fault.lasts_s)
    stage.kill(fault.victim, fault.which)


# -- services ----------------------------------------------------------------------------------------------------------


def _bad_weather(stage: Stage, fault: Fault) -> None:
    kind = fault.kind.removeprefix("s3-")
    if kind == "restart":
        stage.s3.stop()
        time.sleep(fault.lasts_s)
        stage.s3.start()
        return
    stage.gate.weather(kind, fault.lasts_s)
    time.sleep(fault.lasts_s)


def _silence(stage: Stage, fault: Fault) -> None:
    """The service that the flow asks is killed, or stands still, for a while: what was asked is asked again."""
    if fault.variant == "standing still":
        with stage.standing([stage.asked.pid], "the service that is asked"):
            time.sleep(fault.lasts_s)
        return
    stage.asked.stop()
    time.sleep(fault.lasts_s)
    stage.asked.start()


def _misbehave(stage: Stage, flag: Path) -> None:
    """A function of the flow does what it does while this file is there, until that has ended the life."""
    deadline = time.monotonic() + MET_WITHIN_S
    flag.touch()
    try:
        while (state := stage.state()) is not None and state.phase == "running":
            if time.monotonic() > deadline:
                raise Stuck(f"a function {flag.name} for {MET_WITHIN_S:g} s, and the life goes on")
            time.sleep(POLL_S)
    finally:
        flag.unlink()


def _step_clock(stage: Stage, fault: Fault) -> None:
    """The broker's clock is wrong by minutes or hours, and then right again; a life may begin in between."""
    way = fault.variant.partition(" ")[0]
    by_ms = round(LEAST_STEP_MS * (MOST_STEP_MS[way] / LEAST_STEP_MS) ** fault.which)
    with stage.clock_off(by_ms if way == "forward" else -by_ms):
        if fault.variant.endswith("over a start"):
            _misbehave(stage, stage.raises)
            _await_life(stage)
        time.sleep(fault.lasts_s)


def _await_life(stage: Stage) -> None:
    """Wait until a life runs, for a while; start programs as need be."""
    deadline = time.monotonic() + MET_WITHIN_S
    while stage.view() is None and time.monotonic() < deadline:
        stage.revive()
        time.sleep(0.2)


def _cut_off(stage: Stage, fault: Fault) -> None:
    """One executor and its workers lose the broker, whatever they try, while the others keep it."""
    if not stage.cut_off("executor", fault.which, fault.lasts_s):
        raise Stuck("the executor had no connection to the broker that could be cut")


def _hold_end(stage: Stage, _: Fault) -> None:
    """The end of a transaction is sent twice, and comes the second time in the middle of the id's next one."""
    held = stage.kafka.hold()
    for step, what in ((held.caught, "no transaction ended"), (held.released, "the id was not used again")):
        if not step.wait(MET_WITHIN_S):
            raise Stuck(f"{what} within {MET_WITHIN_S:g} s")
    if held.error == 0:
        raise Stuck(f"Kafka took a late end for that of the transaction after it, of {held.transactional_id}")


# -- a start from an earlier commit ------------------------------------------------------------------------------------


def _rewind(stage: Stage, fault: Fault) -> None:
    """The job begins again from a commit before the newest, while others sweep, until it has committed again."""
    deadline = time.monotonic() + MET_WITHIN_S
    conf, job = stage.shop.conf, stage.shop.name
    while len(commits_of(conf, job)) < 2:
        if time.monotonic() > deadline:
            raise Stuck(f"there were not two commits within {MET_WITHIN_S:g} s")
        time.sleep(0.2)
    stage.end(killed=fault.variant == "killed")
    commits = commits_of(conf, job)
    place = int(fault.which * (len(commits) - 1))
    chosen, known = commits[place], {each.id for each in commits}
    with swept(conf, job, keep=len(commits) - place) as faults:
        began = stage.start(chosen.id)
        deadline = time.monotonic() + BEGUN_WITHIN_S
        while known >= {each.id for each in commits_of(conf, job)}:
            if began.process.poll() is not None:
                raise Stuck(f"the start from commit {chosen.id} of {len(commits)} ended:\n{began.log()}")
            if time.monotonic() > deadline:
                raise Stuck(f"nothing was committed within {BEGUN_WITHIN_S:g} s of a start from commit {chosen.id}")
            time.sleep(0.2)
    wrong = [*map(str, faults), *damages(conf, job)]
    if wrong:
        raise Stuck("\n".join(["after a sweep in a rewind", *wrong]))


def _backfill(stage: Stage, fault: Fault) -> None:
    """Older orders flow into one partition without a gap: the other one's have to come all the same."""
    with Backfill(stage.shop, first=BACKFILL_FROM, most=MOST_BACKFILLED):
        time.sleep(fault.lasts_s)


def _savepoint_beside(stage: Stage, _: Fault) -> None:
    """A savepoint is overtaken by a periodic snapshot, others sweep, then it is committed: both have to be whole."""
    conf, job = stage.shop.conf, stage.shop.name
    with swept(conf, job, keep=1) as faults:
        try:
            client = stage.client()
            if client is None:
                raise Stuck("there is no life to take a savepoint of")
            savepoint = _taken(client, f"beside {len(commits_of(conf, job))}", commit=False)
            newer = _taken(client, None, commit=True)
            with opened(conf, job) as (place, _store):
                manifest = place.read(place.find(savepoint))
                place.log.commit(manifest, sha256(manifest.to_json().encode()))
        except LowtideError as error:
            raise Stuck(f"a savepoint beside a periodic snapshot: {error}") from error
        there = {each.id for each in commits_of(conf, job)}
        if savepoint not in there:
            raise Stuck(f"savepoint {savepoint}, which {newer} has overtaken, is not committed")
    wrong = [*map(str, faults), *damages(conf, job)]
    if wrong:
        raise Stuck("\n".join(["after a savepoint beside a periodic snapshot", *wrong]))


def _taken(client: ControlClient, name: str | None, *, commit: bool) -> str:
    """Take a snapshot and wait until it is sealed or committed; its id."""
    view = client.take_snapshot(name, commit=commit)
    deadline = time.monotonic() + MET_WITHIN_S
    while view.phase != ("committed" if commit else "sealed"):
        if view.phase == "failed" or time.monotonic() > deadline:
            raise Stuck(f"snapshot {view.id} is {view.phase}: {view.why}")
        time.sleep(POLL_S)
        view = viewed(client, view.id) or view
    return view.id


def _change_ttl(stage: Stage, fault: Fault) -> None:
    """The job begins with another ttl, so that it may share no part; once it has committed, it begins from that.

    A rate comes only after that: what the broadcast came to before has to be in that commit.
    """
    killed = fault.variant == "killed"
    for begin in (stage.change_ttl, lambda: None):
        stage.end(killed=killed)
        begin()
        _begun(stage, {each.id for each in commits_of(stage.shop.conf, stage.shop.name)})
    stage.rate(round(fault.which * 100))


def _begun(stage: Stage, known: set[str]) -> None:
    """Start the job, and wait until it has committed something of its own."""
    began, deadline = stage.start(), time.monotonic() + BEGUN_WITHIN_S
    while known >= {each.id for each in commits_of(stage.shop.conf, stage.shop.name)}:
        if began.process.poll() is not None:
            raise Stuck(f"the start ended:\n{began.log()}")
        if time.monotonic() > deadline:
            raise Stuck(f"nothing was committed within {BEGUN_WITHIN_S:g} s of a start")
        time.sleep(0.2)


def _hang(stage: Stage, _: Fault) -> None:
    _misbehave(stage, stage.hangs)


def _raise(stage: Stage, _: Fault) -> None:
    _misbehave(stage, stage.raises)


def _outage(stage: Stage, service: str, fault: Fault) -> None:
    pid = stage.services.pid(service)
    assert pid is not None
    if fault.variant == "standing still":
        with stage.standing([pid], service):
            time.sleep(fault.lasts_s)
        return
    stage.services.stop(service, **({"grace_s": 0.0} if fault.variant == "killed" else {}))
    time.sleep(fault.lasts_s)
    stage.services.start(service)


def _at_takeover(stage: Stage, fault: Fault) -> None:
    """The driver dies; the standby that takes over dies too, at one of the steps of its start."""
    stage.kill("driver")
    winner, deadline = stage.taken_over(), time.monotonic() + BEGUN_WITHIN_S
    seen: list[str] = []
    while len(seen) <= fault.nth % TAKEOVER_STEPS:
        state = winner.jobs.state()
        if state is None or state.phase != "starting" or winner.process.poll() is not None:
            break
        if state.step not in seen:
            seen.append(state.step)
        if time.monotonic() > deadline:
            raise Stuck(f"the standby does not come further than {seen[-1]!r}")
        time.sleep(0.005)
    stage.kill("driver")


def _hand_over(stage: Stage, _: Fault) -> None:
    """The program stops on request for a standby to continue the job, and has to end as if somebody had stopped it."""
    old, client = stage.program, stage.client()
    if old is None or client is None:
        raise Stuck("there is no life to hand over")
    try:
        client.hand_over()
    except LowtideError as error:
        raise Stuck(f"the job is not handed over: {error}") from error
    stage.taken_over()
    if code := old.ended(BEGUN_WITHIN_S):
        raise Stuck(f"the program that handed the job over ended with {code}:\n{old.log()}")


# -- two lives at once -------------------------------------------------------------------------------------------------


def _zombie(stage: Stage, fault: Fault, settle: Settle) -> None:
    """A program stands still past its lease, another delivers in its place, and it comes back: it has to end."""
    old = stage.program
    assert old is not None
    roles = of_program(old.process.pid)
    pids = stage.everything(old) if fault.victim == "program" else [old.process.pid, *roles.get("service", [])]
    with stage.standing(pids, fault.victim):
        stage.start()
        settle()
        time.sleep(fault.lasts_s / 3)
    _see_end(old)


def _see_end(old: Program) -> None:
    deadline = time.monotonic() + ZOMBIE_ENDS_WITHIN_S
    while old.process.poll() is None:
        if time.monotonic() > deadline:
            raise Stuck(f"the life that came back, of process {old.process.pid}, does not end:\n{old.log()}")
        time.sleep(0.2)
    if old.process.returncode == 0:
        raise Stuck("the life that came back ended as if somebody had asked it to")


def resume(stage: Stage) -> None:
    """Let everything of the stage run on, whatever has failed."""
    stage.gate.unset()
    if stage.asked.running:
        send([stage.asked.pid], signal.SIGCONT)
    elif stage.shop.asks:
        stage.asked.start()
    for name in ("zookeeper", "kafka"):
        pid = stage.services.pid(name)
        if pid is None:
            stage.services.start(name)
        else:
            send([pid], signal.SIGCONT)


WAYS: dict[str, Callable[[Stage, Fault], None]] = {
    "kill-at-request": _at_request,
    "kill-at-part": _at_part,
    "kill-at-seal": _at_seal,
    "kill-at-commit": _at_commit,
    "kill-after-commit": _after_commit,
    "kill-at-verify": _at_verify,
    "kill-at-load": _at_load,
    "kill-under-s3": _under_s3,
    "kill-at-takeover": _at_takeover,
    "zookeeper-at-commit": _zookeeper_at_commit,
    "call-service": _silence,
    "hung-function": _hang,
    "raised-function": _raise,
    "sweep-in-rewind": _rewind,
    "savepoint-beside": _savepoint_beside,
    "hand-over": _hand_over,
    "older-timestamps": _backfill,
    "changed-ttl": _change_ttl,
    "broker-clock": _step_clock,
    "executor-without-broker": _cut_off,
    "late-end": _hold_end,
}
"""How each fault is done that needs more than a signal or a service."""

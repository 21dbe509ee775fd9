"""What the processes of a life do, and somebody who sweeps: each the real code, as a script."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache, partial
from typing import Any

from lowtide.assignment.messages import PartCount, PartEmpty, PartWritten, Pinned, ShareDurable, ShareSaved
from lowtide.assignment.setting import SnapshotSetting
from lowtide.conf import Conf
from lowtide.connectors.topics import Topic
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.driver import homes as homes_module
from lowtide.driver import recovery as recovery_module
from lowtide.driver.frozen import job_record
from lowtide.driver.opening import begin_life, open_life
from lowtide.driver.placement import text_of
from lowtide.driver.preflight import Surroundings
from lowtide.driver.recovery import StartFrom
from lowtide.service.snapshots import taking as taking_module
from lowtide.service.snapshots.commits import Commits
from lowtide.service.snapshots.taking import Taking
from lowtide.sinks.contract import Packet, lane_name
from lowtide.sinks.kafka import transactions as transactions_module
from lowtide.sinks.kafka.claimant import Claimant
from lowtide.sinks.kafka.claims import pair_of, transactional_id
from lowtide.sinks.kafka.lasts_records import Durable, durable_of, floor_records
from lowtide.sinks.kafka.transactions import Transactions
from lowtide.worker.state_loader import _load
from lowtide_snapshots.commits.choice import choose
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.errors import CommitNeeded
from lowtide_snapshots.format.manifest import FrontAt, LaneLast, Manifest, Part
from lowtide_snapshots.format.names import snapshot_id
from lowtide_snapshots.format.parts import PartHead, encode_part, sha256
from lowtide_snapshots.job import lease as lease_module
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores.contract import StoreSetting
from lowtide_tracker import Floor

from .access import JOB, AskedSender, AskedStore, _now, commit_log, job_store
from .machine import IN, OUT, SINK, Begun, plan
from .scripts import Ask, Script, Scripts

SLOW_MS = 10**9
OTHERS = 90
"""The session of all but drivers: it holds nothing, so it does not matter whether it ends."""
LANE = transactional_id(JOB, 1, 0)


def found(fronts: int) -> Surroundings:
    """What Kafka has for the flow."""
    topic = Topic(IN, fronts, "CreateTime", "delete", "the id of in")
    return Surroundings((topic,), {OUT: 1}, {(IN, front): 0 for front in range(fronts)})


def nobody(*_: object) -> None:
    """Gets nothing."""


@cache
def conf() -> Conf:
    return Conf()


# -- a life ------------------------------------------------------------------------------------------------------------


def driver(session: int, fronts: int, start: StartFrom) -> Script:
    """The driver: takes the lease, makes its life the only one, chooses a commit, and loads it."""

    def script(ask: Ask) -> Begun:
        store = job_store(ask, session)
        number = begin_life(store, plan(), conf(), nobody)
        life = open_life(store, plan(), conf(), found(fronts), nobody, incarnation=number, start=start)
        manifest = None if life.recovered is None else life.recovered.manifest
        steps, state = saved_steps(plan(), 1), []
        for part in manifest.parts if manifest else ():
            table = _load(AskedStore(ask), part, JOB, plan().slack_ms)
            state.append((part.vertex, part.unit, tuple(steps[part.vertex].entries(table))))
        key = life.last.get((SINK, 0))
        return Begun(
            number=number,
            last=None if key is None else (key.tick, key.front, key.sequence, key.child, key.trace),
            floors=life.floors,
            unreported=life.unreported,
            relied_on=life.relied_on,
            start=life.start,
            starts=tuple((front.offset, front.before) for front in life.fronts),
            openings=tuple(front.opening for front in life.fronts),
            state=tuple(state),
            topic=life.lasts_topic,
            generation=life.generation,
            manifest="" if manifest is None else manifest.to_json(),
        )

    return script


def delivery(session: int, begun: Begun) -> Script:
    """The host's way to Kafka: claims, looks whether its life is the newest, then delivers bundle after bundle."""

    def script(ask: Ask) -> None:
        store = job_store(ask, OTHERS)
        name = lane_name(plan().vertices[SINK], 1, 0)
        marks = {} if begun.last is None else {name: OrderKey(*begun.last).packed()}
        way = Transactions(
            {"bootstrap.servers": AskedSender.brokers},
            Claimant(LANE, begun.topic, begun.number, lambda: store.check(begun.number), marks),
            delivery_limit_ms=SLOW_MS,
            max_record_bytes=1_000_000,
        )
        way.open()
        while True:
            messages, mark = ask("take bundle")
            way.deliver([Packet(SINK, 0, messages, mark)])
            ask("is durable")

    return script


def snapshots(session: int, begun: Begun, count: int, keep: int, beside: bool) -> Script:
    """The service: takes snapshots, commits them, and drops what the rule does not keep; or overtakes one of two."""

    def script(ask: Ask) -> None:
        store, log = AskedStore(ask), commit_log(ask, OTHERS)
        base = Manifest.from_json(begun.manifest, "the life's") if begun.manifest else None
        commits = Commits(log, store, nobody, base=base, start=begun.start)  # type: ignore[arg-type]
        if beside and count:
            overtake(ask, begun, commits, keep)
            return
        for number in range(1, count + 1):
            tick = ask("request snapshot", number)
            if tick <= commits.newest:
                continue
            make(ask, take(ask, begun, number, tick, commits), commits, keep)

    return script


def overtake(ask: Ask, begun: Begun, commits: Commits, keep: int) -> None:
    """Take two snapshots, of which the first has a name, and is written when the second is committed."""
    log = commit_log(ask, OTHERS)
    log.reserve(begun.number, snapshot_id(begun.number, 1), commits.bases)
    taken = []
    for number in (1, 2):
        tick = ask("request snapshot", number)
        if tick > commits.newest:
            taken.append(capture(ask, begun, number, tick, commits))
    for taking, state in reversed(taken):
        make(ask, write(ask, begun, taking, state, commits), commits, keep)


def make(ask: Ask, manifest: Manifest, commits: Commits, keep: int) -> None:
    """Seal a snapshot and commit it, then drop what the rule does not keep."""
    AskedStore(ask).put(manifest.path, manifest.to_json().encode())
    commit_log(ask, OTHERS).commit(manifest, sha256(manifest.to_json().encode()))
    commits.add(manifest)
    if keep:
        prune(commits, keep)


def take(ask: Ask, begun: Begun, number: int, tick: int, commits: Commits) -> Manifest:
    """A snapshot from its request to its seal."""
    return write(ask, begun, *capture(ask, begun, number, tick, commits), commits)


def capture(ask: Ask, begun: Begun, number: int, tick: int, commits: Commits) -> tuple[Taking, Any]:
    """A snapshot that was asked for, and what workers have captured: `Taking` gets what they report."""
    setting = SnapshotSetting(
        store=StoreSetting("asked"),
        record=job_record(plan()).to_json(),
        flow=tuple(step.shape for step in saved_steps(plan()).values()),
        base="",
        steps=text_of(plan()),
        generation=begun.generation,
        taking_limit_s=0.0,
        max_commit_age_s=0.0,
        keep=0,
        max_age_s=None,
    )
    taking = Taking(number, None, setting=setting, incarnation=begun.number, record=job_record(plan()), began_s=0.0)
    since = None if commits.last is None else commits.last.tick
    fronts, state = ask("capture", number, since)
    taking.begin(
        tick, ["1/0"], {each: FrontAt(each, IN, "the id of in", each, offset, label) for each, offset, label in fronts}
    )
    taking.hear("1/0", Pinned(number=number, since=since))
    taking.handed_on = () if commits.last is None else commits.last.floors
    return taking, state


def write(ask: Ask, begun: Begun, taking: Taking, state: Any, commits: Commits) -> Manifest:
    """Write the parts of a snapshot; its manifest, once all below T is durable."""
    number, tick = taking.number, taking.tick
    assert tick is not None, "it was asked for"
    taking.hear("1/0", PartCount(number, len(state)))
    for vertex, unit, entries in state:
        if not entries:
            taking.hear("1/0", PartEmpty(number, vertex, unit))
            continue
        step = saved_steps(plan(), 1)[vertex]
        table = step.table(list(entries))
        head = PartHead(JOB, vertex, step.kind, unit, tick, plan().slack_ms, snapshot_id(begun.number, number))
        data = bytes(encode_part(head, table))
        AskedStore(ask).put(head.name, data)
        part = Part(vertex, step.kind, unit, tick, head.snapshot, table.num_rows, len(data), sha256(data))
        taking.hear("1/0", PartWritten(number, part))
    taking.hear("1/0", ShareSaved(number))
    while not taking.whole:
        lasts = [LaneLast(*each) for each in ask("await durable", number)]
        taking.hear("1/0", ShareDurable(number, lasts))
    handed_on = [Floor(each.front, each.offset, each.tick, each.cap) for each in taking.handed_on]
    return taking.seal(commits.at(taking.since), (*ask("floors"), *handed_on))


def sweeper(keep: int) -> Script:
    """Somebody who drops commits and sweeps from outside, in the middle of whatever."""

    def script(ask: Ask) -> None:
        commits = Commits(commit_log(ask, OTHERS), AskedStore(ask), nobody, base=None, start=0)  # type: ignore[arg-type]
        prune(commits, keep)

    return script


def prune(commits: Commits, keep: int) -> None:
    """As the service does after a commit of its own; what came to be needed meanwhile stays."""
    try:
        commits._prune(Rule(keep))
    except CommitNeeded:
        return


# -- what the real functions are given instead of servers --------------------------------------------------------------


def _claim(_kafka: object, ids: Iterable[str], _limit_s: float) -> None:
    for one in sorted({each for name in ids for each in pair_of(name)}):
        Scripts.current("claim", one, Scripts.script)


def _read_lasts(_kafka: object, topic: str, *_: object) -> Durable:
    table: dict[bytes, bytes] = {}
    for key, value in Scripts.current("read lasts", topic):
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return durable_of(table, topic)


def _keep_floors(_kafka: object, topic: str, floors: Iterable[Floor], incarnation: int, *_: object) -> None:
    Scripts.current("keep floors", topic, tuple(floor_records(floors, incarnation)))


def _open_lasts(_kafka: object, _job: str, _known: str | None, generation: int = 0) -> str:
    return f"the id of lasts {generation}"


class _Token:
    @property
    def hex(self) -> str:
        return f"{Scripts.script} {Scripts.current.token()}"


class _Tokens:
    """`uuid` for a lease: another one at each call, and the same again when a script is run again."""

    @staticmethod
    def uuid4() -> _Token:
        return _Token()


class _Clock:
    """`time` where nothing takes time."""

    @staticmethod
    def monotonic() -> float:
        return 0.0

    @staticmethod
    def sleep(_seconds: float) -> None:
        return


class _Impatient(_Clock):
    """`time` where everything takes too long: who finds the lease taken does not wait for it."""

    @staticmethod
    def monotonic() -> float:
        return Scripts.current.token() * 1e6


class _Calendar:
    """`datetime` where it is always the same day."""

    @staticmethod
    def now(_zone: object) -> Any:
        return _now()


def _given_nodes(_store: JobStore) -> None:
    """The place is there."""


SERVERS: list[tuple[object, str, object]] = [
    (homes_module, "claim", _claim),
    (homes_module, "open_lasts", _open_lasts),
    (homes_module, "read_lasts", _read_lasts),
    (homes_module, "keep_floors", _keep_floors),
    (recovery_module, "open_store", lambda _setting: AskedStore(Scripts.current)),
    (recovery_module, "choose", partial(choose, threads=1)),
    (transactions_module, "Sender", AskedSender),
    (transactions_module, "time", _Clock),
    (lease_module, "uuid", _Tokens),
    (lease_module, "time", _Impatient),
    (taking_module, "datetime", _Calendar),
    (JobStore, "_make_nodes", _given_nodes),
    # One job in one place: what tells it from its namesakes, and its graph, is not part of the model.
    (homes_module, "own", nobody),
    (JobStore, "identity", lambda _store, _life: "the job"),
    (JobStore, "stores", lambda _store: {}),
    (JobStore, "published_in", lambda _store, _generation: None),
]
"""Whose attributes stand for servers and clocks while the model runs, and what stands there."""


def script_of(key: tuple[Hashable, ...]) -> Script:
    """The script of a key."""
    made: dict[str, Callable[..., Script]] = {
        "driver": driver,
        "delivery": delivery,
        "snapshots": snapshots,
        "sweeper": sweeper,
    }
    name, *given = key
    return made[str(name)](*given)

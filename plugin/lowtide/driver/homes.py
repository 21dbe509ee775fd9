"""The stores of a job as a life begins: each is opened, claimed, and only then read (R13, W10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace

from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.core.fronts.floors import Steps
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.formats.endpoints import is_staged
from lowtide.flow.plan.own_topics import answers_topic
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Write
from lowtide.sinks.answers.log import clear_answers
from lowtide.sinks.answers.topics import answers_topics, keeping_calls
from lowtide.sinks.contract import LaneName, Life
from lowtide.sinks.errors import of_another_job
from lowtide.sinks.kafka.claims import claim
from lowtide.sinks.kafka.lasts import Durable, keep_floors, open_lasts, own, read_lasts, topic_of
from lowtide.sinks.own_topics import open_topics
from lowtide.sinks.staged.topics import staged_topics
from lowtide.sinks.stores import home_of, is_direct, job_sinks, uses_kafka
from lowtide_snapshots.job.record import units_of_lanes
from lowtide_snapshots.job.store import JobStore

Say = Callable[[str], None]
STAGED, ANSWERS = "staged:", "answers:"
"""Stand before the name of a sink or call where the identity of its topic is kept beside those of stores."""
AGAIN = "@"
"""Stands behind the identity of a topic of answers, before the output generation that it has them of, from the second
one on."""
LANES = "@lanes="
"""Stands behind the identity of a store that is delivered to by strands, before the number of lanes that names by lane,
of earlier versions, mean there. An earlier version takes it for another store, and does not begin."""


class Homes:
    """The stores that a life delivers to, and that keep what lives before it have delivered.

    Args:
        store: The job's place, connected.
        plan: What will run.
        conf: Where and how.
        incarnation: The life's number.
        say: Called with each step in a few words.

    Attributes:
        job_id: The job's id for good.
        generation: The output generation.
        stores: The sinks in other stores than Kafka, by store.
        strands: What is durable there of this life's strands, by name, once they are claimed.
        keeps: False if nothing is kept, and so everything is delivered at least once.

    Raises:
        FlowError: a store is gone from the flow, or cannot deliver as the conf says.
        ServiceUnavailable: ZooKeeper does not answer.
    """

    def __init__(self, store: JobStore, plan: Plan, conf: Conf, incarnation: int, say: Say) -> None:
        self._store, self._plan, self._conf, self._say = store, plan, conf, say
        self._limit_s = conf.kafka.delivery_limit_ms / 1000
        self._life = Life(incarnation, "driver", self._limit_s, lambda: store.check(incarnation))
        self.job_id = store.identity(incarnation)
        known, self.generation = store.lasts()
        self.keeps = conf.job.delivery == "exactly_once"
        self._in_kafka = self.keeps and (bool(known) or uses_kafka(plan))
        self.stores = job_sinks(plan, conf, self.job_id, self.generation)
        self.strands: dict[LaneName, OrderKey] = {}
        _refuse_lost(store.stores(), self.stores)
        if not self.keeps:
            _refuse_unkept(plan)

    @property
    def lasts_topic(self) -> str:
        """The topic in which Kafka's lanes keep their `last`; empty if they keep none."""
        return topic_of(self._plan.name, self.generation) if self._in_kafka else ""

    def claim(self, transactional_ids: set[str]) -> Durable:
        """Fence every earlier life, and return all that is durable.

        Args:
            transactional_ids: Those that this life may use.

        Raises:
            LifeEnded: another life has begun meanwhile, or what is there is another job's.
            LastsLost: a store is not the one it was.
            FlowError: a table does not fit its sink.
            ServiceUnavailable: a store does not answer.
        """
        durable = Durable({}, ())
        if self._in_kafka:
            durable = self._claimed(transactional_ids)
            self._open_topics()
            self._say_what_stays()
        elif self.keeps and self._store.lasts()[0] is None:
            self._store.set_lasts(self._life.incarnation, "")
        return self._claimed_elsewhere(durable)

    def deliver_again(self, known: Durable) -> Durable:
        """Begin a new output generation: nothing of it is delivered yet, but its labels depend on the earlier ones.

        Args:
            known: What is durable, with all floors.

        Raises:
            FlowError: a sink only adds records, so they would be there twice.
            LowtideError: as `claim`.
        """
        _refuse_doubled(self._plan)
        self.generation += 1
        self._say(f"delivering everything from here on again, as output generation {self.generation}")
        topic, topic_id, incarnation = self.lasts_topic, "", self._life.incarnation
        if self._in_kafka:
            topic_id = open_lasts(self._conf.kafka, self._plan.name, None, self.generation)
            keep_floors(self._conf.kafka, topic, known.floors, incarnation, self._limit_s, known.archived)
        self._store.set_lasts(incarnation, topic_id, self.generation)
        if self._in_kafka:
            own(self._conf.kafka, topic, self.job_id, self._limit_s)
            self._open_topics()
        self.stores = {name: replace(job, generation=self.generation) for name, job in self.stores.items()}
        self.strands = {}
        return self._claimed_elsewhere(replace(known, last={}))

    def _claimed(self, transactional_ids: set[str]) -> Durable:
        """Fence every earlier life at Kafka, then read what is durable there."""
        store, kafka, topic, say = self._store, self._conf.kafka, self.lasts_topic, self._say
        incarnation = self._life.incarnation
        say("claiming the sinks")
        known = store.lasts()[0] or None
        topic_id = open_lasts(kafka, self._plan.name, known, self.generation)
        if known is None:
            # Before the claim, which would end the life of a job of this name that has its place in another ZooKeeper.
            self._refuse_unknown(read_lasts(kafka, topic, self._limit_s, say))
        store.add_sink_ids(incarnation, transactional_ids)
        claim(kafka, store.sink_ids(), self._limit_s)
        store.check(incarnation)
        durable = read_lasts(kafka, topic, self._limit_s, say)
        if known is None or durable.owner not in ("", self.job_id):
            self._refuse_unknown(durable)
        if known is None:
            store.set_lasts(incarnation, topic_id, self.generation)
        if not durable.owner:
            own(kafka, topic, self.job_id, self._limit_s)
        return durable

    def _open_topics(self) -> None:
        """See that the logs of staged sinks and the answers of calls are those that earlier lives have written.

        A new output generation asks again: what it reads may be other records under the same order keys.
        """
        wanted = {STAGED + sink: topic for sink, topic in staged_topics(self._plan).items()}
        wanted |= {ANSWERS + call: topic for call, topic in answers_topics(self._plan).items()}
        if not wanted:
            return
        kafka, lanes, known = self._conf.kafka, self._plan.lanes, self._store.stores()
        ids = {name: topic_id_of(id_) for name, id_ in known.items() if name in wanted}
        found = open_topics(wanted, kafka, lanes, ids, self._conf.exchange.max_frame_bytes, self._plan.grown)
        for name in found:
            if self.generation and name.startswith(ANSWERS):
                found[name] += f"{AGAIN}{self.generation}"
                if known.get(name, found[name]) != found[name]:
                    clear_answers(librdkafka_settings(kafka), wanted[name].name, lanes, self._limit_s)
        self._store.set_stores(self._life.incarnation, {**known, **found})

    def _say_what_stays(self) -> None:
        """Report the topics with answers of calls that have gone."""
        kept = {name.removeprefix(ANSWERS) for name in self._store.stores() if name.startswith(ANSWERS)}
        for call in sorted(kept - set(keeping_calls(self._plan))):
            topic = answers_topic(self._plan.name, call)
            self._say(f'topic "{topic}" stays, with answers of call "{call}", which the flow no longer keeps')

    def _claimed_elsewhere(self, durable: Durable) -> Durable:
        """Fence every earlier life at the other stores, and add what is durable there."""
        if not self.stores:
            return durable
        with ExitStack() as stack:
            homes = {name: stack.enter_context(closing(home_of(job, self._life))) for name, job in self.stores.items()}
            known, found = self._store.stores(), {}
            for name, home in homes.items():
                self._say(f"claiming {name}")
                identity, lanes = identity_of(known.get(name))
                found[name] = f"{home.open(identity)}{LANES}{lanes or self._plan.lanes}"
                home.claim()
            self._life.check()
            stored = {name: home.read() for name, home in homes.items()}
            self._store.set_stores(self._life.incarnation, {**known, **found})
        last, floors = dict(durable.last), Steps(durable.floors)
        for name, each in stored.items():
            own = set(self.stores[name].lane_names)
            self.strands |= {strand: key for strand, key in each.last.items() if strand in own}
            last |= by_units(each.last, self._plan, identity_of(found[name])[1])
            floors.merge(each.floors)
        return replace(durable, last=last, floors=tuple(floors))

    def _refuse_unknown(self, durable: Durable) -> None:
        """Refuse what was delivered by a life that this ZooKeeper knows nothing of (errors: LifeEnded)."""
        topic, zookeeper = self.lasts_topic, self._conf.zookeeper
        where = f"{zookeeper.hosts}/{zookeeper.root}"
        if durable.owner not in ("", self.job_id):
            raise of_another_job(f'topic "{topic}"', where, "the topic once no job writes it")
        if durable.last or durable.floors:
            raise LifeEnded(
                f'topic "{topic}" says that a life of the job has delivered, but ZooKeeper does not know that life: '
                "the job runs with another ZooKeeper, or its nodes in this one were lost, and with them its fronts' "
                "numbers",
                where=where,
                way_out="name the job's own ZooKeeper, or restore its data; or give this job another name; or delete "
                "the topic once no job writes it, which delivers everything again",
            )


def read_elsewhere(store: JobStore, plan: Plan, conf: Conf) -> dict[LaneName, OrderKey]:
    """Return what is durable in other stores than Kafka, without a claim: more may be delivered meanwhile."""
    known, last = store.stores(), dict[LaneName, OrderKey]()
    incarnation = store.incarnation()
    life = Life(incarnation, "recovery", conf.kafka.delivery_limit_ms / 1000, lambda: None)
    for name, job in job_sinks(plan, conf, "", store.lasts()[1]).items():
        if name in known:
            with closing(home_of(job, life)) as home:
                last |= by_units(home.read().last, plan, identity_of(known[name])[1])
    return last


def identity_of(known: str | None) -> tuple[str | None, int]:
    """Return a store's identity, and how many lanes names by lane mean there; 0 for those of the job's record.

    Args:
        known: What is kept of the store; None if no life has delivered to it.
    """
    if known is None:
        return None, 0
    identity, _, lanes = known.partition(LANES)
    return identity, int(lanes or 0)


def topic_id_of(known: str) -> str:
    """Return the id of a topic of the job's own, of what is kept of it."""
    return known.partition(AGAIN)[0]


def by_units(last: Mapping[LaneName, OrderKey], plan: Plan, lanes: int) -> dict[LaneName, OrderKey]:
    """Return what a store has under names that say hash units, those by lane too: a lane's number may mean others.

    Args:
        last: By name what is durable.
        plan: The plan.
        lanes: The number of lanes that names by lane mean; 0 for the plan's.
    """
    found: dict[LaneName, OrderKey] = {}
    for name, key in last.items():
        units = units_of_lanes(plan.units, lanes or plan.lanes, name.lane, name.lane + 1)
        strand = name if name.end else replace(name, lane=units.start, end=units.stop)
        found[strand] = max(key, found.get(strand, key))
    return found


def _refuse_lost(known: Iterable[str], stores: Iterable[str]) -> None:
    """Refuse a flow that no longer writes a store: floors and marks of the job are there."""
    if lost := sorted({name for name in known if not name.startswith((STAGED, ANSWERS))} - set(stores)):
        raise FlowError(
            f"the job has delivered to {lost[0]}, which the flow no longer writes",
            where="the job's record of its stores in ZooKeeper",
            way_out="give the sink back to the flow; or give the flow another name: a new job reads its sources from "
            "their beginning",
        )


def _refuse_doubled(plan: Plan) -> None:
    for vertex in _elsewhere(plan):
        sink = vertex.step.sink
        if not sink.by_key:
            raise FlowError(
                f'sink "{vertex.name}" only adds to {sink.place}: what is there already would be there twice',
                where="--redeliver",
                way_out="recover without --redeliver; or give the flow another name and the sink a new place",
            )


def _refuse_unkept(plan: Plan) -> None:
    if calls := keeping_calls(plan):
        raise FlowError(
            f'call "{calls[0]}" keeps its answers by what is delivered exactly once',
            where="job.delivery is at_least_once",
            way_out='leave job.delivery out, or set it to "exactly_once"; or say repeatable=True of the call',
        )
    first = next(_elsewhere(plan), None)
    if first is None:
        return
    raise FlowError(
        f"a job that writes {first.step.sink.place} delivers exactly once there, so it has to in Kafka as well",
        where="job.delivery is at_least_once",
        way_out='leave job.delivery out, or set it to "exactly_once"',
    )


def _elsewhere(plan: Plan) -> Iterator[Vertex[Write]]:
    """Yield the sinks whose records go, or go on, to another store than Kafka."""
    return (vertex for vertex in plan.sinks() if is_direct(vertex.step.sink) or is_staged(vertex.step.sink))

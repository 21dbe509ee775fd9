"""The Kafka that the conf names, and the topics of a flow."""

from lowtide.doctor.check import Answer, Surroundings
from lowtide.errors import ServiceUnavailable
from lowtide.flow import Flow
from lowtide.steps import Read, Write


def broker(surroundings: Surroundings) -> Answer:
    """A broker answers at `[kafka].bootstrap`."""
    conf = surroundings.conf
    if missing := unreachable(surroundings):
        return missing
    count = len(surroundings.topics.names())
    service = surroundings.services["kafka"]
    if conf.embedded.enabled and service.address not in (None, conf.kafka.bootstrap):
        return Answer(
            "warn",
            f"a broker answers at {conf.kafka.bootstrap}, but the embedded one is at {service.address}",
            f'set bootstrap = "{service.address}" in [kafka], or enabled = false in [embedded]',
        )
    return Answer("ok", f"answers at {conf.kafka.bootstrap}; {count} topics")


def topics(surroundings: Surroundings) -> Answer:
    """The flow's topics are there and can be read from the beginning to the end; who stamps their records."""
    if surroundings.flow is None:
        return Answer("ok", "name a flow to have its topics looked at")
    if unreachable(surroundings):
        return Answer("warn", "not looked at, as no broker answers", "mend the broker first")
    read, written = topics_of(surroundings.flow)
    described = {topic.name: topic for topic in surroundings.topics.describe_all([*read, *written])}
    for name in read:
        if "compact" in described[name].cleanup:
            return Answer(
                "fail",
                f"the source {name} is compacted: records vanish from it, so it cannot be read again",
                f"set cleanup.policy=delete for {name}, or read a topic that keeps its records",
            )
    found = [f"{topic.name}: {topic.partitions} partitions, {topic.timestamps}" for topic in described.values()]
    return Answer("ok", "; ".join(found))


def topics_of(flow: Flow) -> tuple[list[str], list[str]]:
    """The topics a flow reads, and those it writes; each once, in the order they stand in the flow."""
    read = [call.step.source.topic for call in flow.calls if isinstance(call.step, Read)]
    written = [call.step.sink.topic for call in flow.calls if isinstance(call.step, Write)]
    if flow.dead_letters is not None:
        written.append(flow.dead_letters.topic)
    return list(dict.fromkeys(read)), [name for name in dict.fromkeys(written) if name not in read]


def unreachable(surroundings: Surroundings) -> Answer | None:
    """What to answer if no broker does; None if one does.

    Where the embedded one is wanted and does not run, that is no fault yet.
    """
    conf = surroundings.conf
    service = surroundings.services["kafka"]
    if conf.embedded.enabled and service.state in ("stopped", "dead") and _is_local(conf.kafka.bootstrap):
        return Answer("warn", f"the embedded Kafka is {service.state}", "start it: lowtide up")
    try:
        surroundings.topics.names()
    except ServiceUnavailable as error:
        return Answer("fail", f"{error.what}: {error.where}", error.way_out)
    return None


def _is_local(bootstrap: str) -> bool:
    return bootstrap.startswith(("127.", "localhost:"))

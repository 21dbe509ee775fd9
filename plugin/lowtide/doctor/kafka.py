"""The Kafka that the conf names, and the topics of a flow."""

from lowtide.doctor.check import Answer, Surroundings
from lowtide.errors import ServiceUnavailable


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
    """The flow's topics are there and can be read and written as it wants; who stamps their records."""
    from lowtide.driver import preflight
    from lowtide.driver.query import topics_of

    plan = surroundings.plan
    if plan is None:
        return Answer("ok", "name a flow to have its topics looked at")
    if unreachable(surroundings):
        return Answer("warn", "not looked at, as no broker answers", "mend the broker first")
    sinks = preflight.look(plan, surroundings.conf).sinks
    described = surroundings.topics.describe_all([*dict.fromkeys(topics_of(plan)), *sinks])
    noun = {1: "partition"}
    return Answer(
        "ok",
        "; ".join(
            f"{topic.name}: {topic.partitions} {noun.get(topic.partitions, 'partitions')}, {topic.timestamps}"
            for topic in described
        ),
    )


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

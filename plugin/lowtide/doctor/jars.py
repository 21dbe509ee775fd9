"""The third-party jars, and Lowtide's own."""

from lowtide.doctor.check import Answer, Surroundings
from lowtide.driver.session import driver_archive
from lowtide.embedded.kafka import broker_archive
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import broker_jars, connector_jars, jars_folder


def third_party_jars(_: Surroundings) -> Answer:
    """Spark's Kafka connector and the Kafka server are there, as the list of jars has them."""
    folder = jars_folder()
    if not folder.is_dir():
        # They are fetched at the first start, which takes a minute; a look around should not.
        return Answer("warn", f"not fetched yet: {folder}", "fetch them: python -m lowtide.jars.third_party")
    return Answer("ok", f"connector {len(connector_jars())}, broker {len(broker_jars())}: {folder}")


def own_jar(_: Surroundings) -> Answer:
    """Lowtide's own jar is there, and as new as its source."""
    return Answer("ok", str(shim_jar()))


def class_archives(_: Surroundings) -> Answer:
    """A job has been rehearsed, so that Spark and an embedded Kafka start in half the time."""
    if not jars_folder().is_dir():
        return Answer("warn", "the jars are not fetched yet", "fetch them, then: python -m lowtide.rehearsal")
    wanted = [driver_archive(), broker_archive()]
    missing = [archive.name for archive in wanted if not archive.path.is_file()]
    if missing:
        way_out = "start them sooner: python -m lowtide.rehearsal (half a minute, once)"
        return Answer("warn", f"none of {', '.join(missing)}", way_out)
    return Answer("ok", str(wanted[0].path.parent))

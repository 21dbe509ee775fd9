"""The Java runtime."""

from lowtide.doctor.check import Answer, Surroundings
from lowtide.jars.java import find_java


def java(_: Surroundings) -> Answer:
    """Spark and the embedded services find a Java that is new enough."""
    found = find_java()
    return Answer("ok", f"Java {found.version}: {found.executable} (from {found.found_in})")

"""The errors after which a host's producer can do nothing more."""

from __future__ import annotations

from lowtide.errors import LifeEnded, ServiceUnavailable


def fenced(said: str, where: str) -> LifeEnded:
    """Return the error of a producer whose claim is over."""
    return LifeEnded(
        "another life of the job has claimed this worker's deliveries, or Kafka has given up waiting for the "
        f"end of a transaction: {said}",
        where=where,
        way_out="nothing if another life is running; else start the job again: nothing is lost or duplicated",
    )


def denied(said: str, where: str) -> ServiceUnavailable:
    """Return the error of a producer that may not do what it has to."""
    return ServiceUnavailable(
        f"Kafka does not allow this worker's transactions: {said}",
        where=where,
        way_out="let the job's user write with transactional ids that begin with lowtide., and keep "
        "[kafka].delivery_limit_ms below the broker's transaction.max.timeout.ms",
    )


def unknown(said: str, where: str) -> LifeEnded:
    """Return the error of a producer that was not told how its commit ended, or has failed in another way."""
    return LifeEnded(
        f"the outcome of a transaction is unknown, or Kafka's client has failed: {said}",
        where=where,
        # A broker that is just fencing this id may answer a commit with no more than "unknown error".
        way_out="nothing if another life is running; else start the job again: it reads what was committed, and "
        "nothing is lost or duplicated",
    )

"""The start of a user's file: `Flow`, and `main` to run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from lowtide.errors import FlowError
from lowtide.flow.calls import user_site
from lowtide.flow.endpoints import Kafka, KafkaSource
from lowtide.flow.graph import FlowGraph
from lowtide.flow.steps import Read
from lowtide.flow.streams import Stream

__all__ = ["Flow", "main"]

T = TypeVar("T")


class Flow(FlowGraph):
    """A flow from sources to sinks.

    Attributes:
        name: The flow's name, which is also the job's.
        dead_letters: The sink for records that cannot be parsed or whose step raised; without one they stop the job.
    """

    def read(self, name: str, source: Kafka[T]) -> Stream[T]:
        """Read records from a source, e.g. `kafka("orders", json(Order))`."""
        site = user_site()
        if not isinstance(source, Kafka):
            raise FlowError(f"read takes kafka(topic, format), found {source!r}", where=str(site))
        if source.key is not None:
            raise FlowError(
                "a source has no key=",
                where=str(site),
                way_out="leave it out; a field that is the message's key is marked: Annotated[str, lt.Key()]",
            )
        return Stream(self, self.add(Read(KafkaSource(source.topic, source.format, source.start)), name, (), site))

    def run_locally(
        self,
        inputs: Mapping[str, Iterable[Any]] | None = None,
        *,
        until: datetime | None = None,
        **named: Iterable[Any],
    ) -> dict[str, list[Any]]:
        """Run the flow here and now on lists of records, one per source, in order; no Spark, no services.

        Args:
            inputs: The records of each source by its name: objects of the source's type, the bytes of messages' values,
                or `Message(key, value, headers, timestamp)`; as `Stamped` where log time matters. A source that is not
                named has no records.
            until: Where time stops after the last record; by default it goes on, so that every window closes.
            **named: More inputs, by names that are identifiers.

        Returns:
            The records written to each sink by its name, in order; those that failed under "dead-letters".
        """
        from lowtide.local.run import run_records

        return run_records(self, {**(inputs or {}), **named}, until)


def main(flow: Flow) -> None:
    """Run the flow as `lowtide run` does, with the arguments of the command line."""
    from lowtide.cli import main_flow

    main_flow(flow)

"""The flow a user writes: a record of its steps. Nothing is checked or run before somebody asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from lowtide.calls import Call, sink_of, user_site
from lowtide.connectors.spec import Kafka, KafkaSource
from lowtide.errors import FlowError
from lowtide.steps import Read, Site, Step
from lowtide.streams import Stream

T = TypeVar("T")

DEAD_LETTERS = "dead-letters"
"""The name of the sink that takes the records which failed."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""A name that may stand in a path, a topic and a command line as it is."""

NAME_RULE = "use letters, digits, '_', '.' and '-', at most 100, starting with a letter or digit"


class Flow:
    """A flow from sources to sinks.

    Attributes:
        name: The flow's name, which is also the job's.
        dead_letters: The sink for records that cannot be parsed or whose step raised; without one they stop the job.
        calls: The steps in the order they were written; a step stands after the one it takes records from.
    """

    def __init__(self, name: str, *, dead_letters: Kafka[Any] | None = None) -> None:
        self.site = user_site()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise FlowError(f"{name!r} is not a flow's name", where=str(self.site), way_out=NAME_RULE)
        self.name = name
        self.dead_letters = None if dead_letters is None else sink_of(dead_letters, "Flow")
        self.calls: list[Call] = []

    def read(self, name: str, source: Kafka[T]) -> Stream[T]:
        """Read records from a source, e.g. `kafka("orders", json(Order))`."""
        site = user_site()
        if not isinstance(source, Kafka):
            raise FlowError(f"read takes kafka(topic, format), found {source!r}", where=str(site))
        if source.key is not None:
            raise FlowError(
                "a source has no key column", where=str(site), way_out="leave out key=; read raw() to see the keys"
            )
        return Stream(self, self.add(Read(KafkaSource(source.topic, source.format)), name, (), site))

    def run_locally(self, **inputs: Iterable[Any]) -> dict[str, list[Any]]:
        """Run the flow here and now on lists of records, one per source, in order; no Spark, no services.

        Args:
            **inputs: The records of each source by its name (`**{"my-source": [...]}` where that is no identifier):
                objects of the source's type, or the bytes of messages. A source that is not named has no records.

        Returns:
            The records written to each sink by its name, in order; those that failed under "dead-letters".
        """
        from lowtide.local import run_records

        return run_records(self, inputs)

    def add(self, step: Step, name: str | None, parents: tuple[int, ...], site: Site, back: int | None = None) -> int:
        """Write a step down, for streams; returns its index in `calls`."""
        self.calls.append(Call(step, name, parents, site, back))
        return len(self.calls) - 1

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"


def main(flow: Flow) -> None:
    """Run the flow as `lowtide run` does, with the arguments of the command line."""
    from lowtide.cli import main_flow

    main_flow(flow)

"""Options that several commands of `lowtide bench` share, and the conf they result in."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import click

from lowtide.conf import Conf
from lowtide.errors import ConfError

__all__ = [
    "EPOCH", "FLOW", "GROUPING", "MARKDOWN", "STATE_KEYS", "SUBJECTS", "TIMESTAMPS", "WARM", "Grouping", "Paces",
    "Rates", "Subjects", "measured_conf",
]  # fmt: skip

Grouping = Literal["optimistic", "ordered"]
MOST_STATE_KEYS = 10**7
"""The limit on different keys of 8 bytes; see `lowtide_bench.counted`."""


class Rates(click.ParamType[tuple[int, ...]]):
    """Integers above 0, separated by commas."""

    name = "N[,N...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of int."""
        if isinstance(value, tuple):
            return value
        try:
            rates = tuple(int(rate) for rate in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not an integer, or several separated by commas", param, ctx)
        if min(rates) < 1:
            self.fail(f"{min(rates)} is less than 1", param, ctx)
        return rates


class Paces(click.ParamType[tuple[float, ...]]):
    """Seconds, 0 or more, separated by commas, each once."""

    name = "S[,S...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of float."""
        if isinstance(value, tuple):
            return value
        try:
            paces = tuple(float(pace) for pace in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds, or several separated by commas", param, ctx)
        if not all(0 <= pace < float("inf") for pace in paces):
            self.fail(f"{value!r} has a number that is no time in seconds", param, ctx)
        if len(set(paces)) < len(paces):
            self.fail(f"{value!r} has a number twice; --rounds measures each several times", param, ctx)
        return paces


class Subjects(click.ParamType[tuple[str, ...]]):
    """Names of subjects, separated by commas."""

    name = "NAME[,NAME...]"
    choices = ("bare", "skeleton", "flow")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of str."""
        names = value if isinstance(value, tuple) else tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if name not in self.choices:
                self.fail(f"{name!r} is none of {', '.join(self.choices)}", param, ctx)
        return names


EPOCH = click.option(
    "--epoch", type=click.FloatRange(min=5), default=60.0, show_default=True, help="Seconds of an epoch."
)
FLOW = click.option(
    "--flow",
    type=click.Choice(["running-count", "inverted-index", "passthrough"]),
    default="running-count",
    show_default=True,
)
TIMESTAMPS = click.option(
    "--timestamps",
    type=click.Choice(["create", "append"]),
    default="create",
    show_default=True,
    help="Who dates the records: their producer, or Kafka as it appends them.",
)
GROUPING = click.option(
    "--grouping",
    type=click.Choice(["optimistic", "ordered"]),
    help="How stateful steps come to the right order; by default as the conf says.",
)
STATE_KEYS = click.option(
    "--state-keys",
    type=click.IntRange(0, MOST_STATE_KEYS),
    default=0,
    show_default=True,
    help="So many keys are in the running count's state before; the 1,000 that are measured are beside them.",
)
SUBJECTS = click.option(
    "--subjects",
    type=Subjects(),
    default=",".join(Subjects.choices),
    show_default=True,
    help="What is measured, in turn: the bare librdkafka loop; the skeleton, which is the flow's way through Spark and "
    "Kafka's transactions with workers that only count; the flow.",
)
WARM = click.option(
    "--warm-s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The broker has load and transactions for so long before anything is measured; its JVM compiles meanwhile.",
)
MARKDOWN = click.option("--markdown", is_flag=True, help="Print the tables as markdown.")


def measured_conf(conf: Conf, grouping: Grouping | None, epoch: float) -> Conf:
    """Return the conf with the command line's settings; ConfError if its figures could not be compared."""
    if conf.job.parallelism > 2:
        raise ConfError(
            f"[job] parallelism is {conf.job.parallelism}: the sink of a measurement has 2 partitions",
            way_out="set job.parallelism to 1 or 2",
        )
    job = dataclasses.replace(conf.job, grouping=grouping or conf.job.grouping)
    return dataclasses.replace(conf, job=job, epoch=dataclasses.replace(conf.epoch, duration_s=epoch))

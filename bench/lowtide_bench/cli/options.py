"""Options that several commands of `lowtide bench` share, and the conf they result in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lowtide.conf import Conf
from lowtide.errors import ConfError

Command = Callable[..., Any]
Grouping = Literal["optimistic", "ordered"]
MOST_STATE_KEYS = 10**7
"""The limit on different keys of 8 bytes; see `lowtide_bench.counted`."""

if TYPE_CHECKING:
    _Rates = click.ParamType[tuple[int, ...]]
    _Paces = click.ParamType[tuple[float, ...]]
    _Names = click.ParamType[tuple[str, ...]]
else:  # Older versions of click know no type of the value.
    _Rates = _Paces = _Names = click.ParamType


class Rates(_Rates):
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


class Paces(_Paces):
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
            self.fail(f"{value!r} has a number that is not a time in seconds", param, ctx)
        if len(set(paces)) < len(paces):
            self.fail(f"{value!r} has a number twice; --rounds measures each several times", param, ctx)
        return paces


class Names(_Names):
    """Some of several names, separated by commas.

    Args:
        choices: All names; they are the default.
    """

    name = "NAME[,NAME...]"

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of str, each once."""
        names = value if isinstance(value, tuple) else tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if name not in self.choices:
                self.fail(f"{name!r} is none of {', '.join(self.choices)}", param, ctx)
        return tuple(dict.fromkeys(names))

    def option(self, flag: str, said: str) -> Callable[[Command], Command]:
        """Return the option that takes them."""
        return click.option(flag, type=self, default=",".join(self.choices), show_default=True, help=said)


def gathered(kind: type[Any]) -> Callable[[Command], Command]:
    """Pass the options that are fields of a dataclass as one argument, `options`; fields without one have defaults.

    ```
    @click.command()
    @click.option("--rate", type=int)
    @MARKDOWN
    @as_json
    @gathered(Asked)                       # class Asked(Printed): rate: int
    def measure(*, options: Asked) -> int: ...
    ```
    """
    names = [field.name for field in dataclasses.fields(kind)]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def called(**given: Any) -> Any:
            made = kind(**{name: given.pop(name) for name in names if name in given})
            return command(options=made, **given)

        return called

    return decorate


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Form of a result: tables on a terminal or as markdown, or one object as the last line."""

    markdown: bool
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class OfJob(Printed):
    """Options of a command that runs a job; None is the conf's own value."""

    conf: Conf
    grouping: Grouping | None = None
    epoch: float | None = None

    def measured(self) -> Conf:
        """Return the conf with these settings; ConfError if its figures could not be compared."""
        conf = self.conf
        if conf.job.parallelism > 2:
            raise ConfError(
                f"[job] parallelism is {conf.job.parallelism}: the sink of a measurement has 2 partitions",
                way_out="set job.parallelism to 1 or 2",
            )
        job = dataclasses.replace(conf.job, grouping=self.grouping or conf.job.grouping)
        epoch = dataclasses.replace(conf.epoch, duration_s=self.epoch or conf.epoch.duration_s)
        return dataclasses.replace(conf, job=job, epoch=epoch)


EPOCH = click.option(
    "--epoch", type=click.FloatRange(min=5), default=60.0, show_default=True, help="Seconds of an epoch."
)
FLOW = click.option(
    "--flow",
    type=click.Choice(["running-count", "inverted-index", "word-count", "passthrough"]),
    default="running-count",
    show_default=True,
)
TIMESTAMPS = click.option(
    "--timestamps",
    type=click.Choice(["create", "append"]),
    default="create",
    show_default=True,
    help="Timestamps are the producer's, or Kafka's as it appends records.",
)
GROUPING = click.option(
    "--grouping",
    type=click.Choice(["optimistic", "ordered"]),
    help="Order stateful steps by repair, or by waiting; as the conf says by default.",
)
STATE_KEYS = click.option(
    "--state-keys",
    type=click.IntRange(0, MOST_STATE_KEYS),
    default=0,
    show_default=True,
    help="Fill the running count's state with this many keys before.",
)
SUBJECTS = Names(("bare", "skeleton", "flow")).option(
    "--subjects",
    "Measure these: the bare librdkafka loop; a skeleton that only counts, on the flow's way through Spark and "
    "Kafka; the flow.",
)
TRIES = click.option(
    "--tries",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Repeat a measurement that other processes disturb, up to this many in all.",
)
MARKDOWN = click.option("--markdown", is_flag=True, help="Print the tables as markdown.")
PLOTS = click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw the figures into this folder, as SVG."
)

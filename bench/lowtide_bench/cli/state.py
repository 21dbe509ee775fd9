"""`lowtide bench state`: a host whose state is larger than its memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide_bench.cli.options import MARKDOWN, Printed, gathered
from lowtide_bench.cli.running import ended_by_sigterm, progress, show

MOST_KEYS = 99_999_999
_SIZE = re.compile(r"(\d+)([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

if TYPE_CHECKING:
    _Bytes = click.ParamType[int]
else:  # Older versions of click know no type of the value.
    _Bytes = click.ParamType


class Size(_Bytes):
    """A size in bytes: `512M`, `1G`, or `0`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        found = _SIZE.fullmatch(str(value).upper())
        if found is None:
            self.fail(f"{value!r} is not a size such as 512M or 1G", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Options of the command."""

    keys: int
    state_bytes: int
    memory: int
    memory_keys: int
    seconds: float
    warmup: float
    batch: int
    rate: int
    folder: str | None


@click.command()
@click.option("--keys", type=click.IntRange(1, MOST_KEYS), default=10_000_000, show_default=True, help="In state.")
@click.option(
    "--state-bytes", type=click.IntRange(min=0), default=80, show_default=True, help="Of each, beside its count."
)
@click.option(
    "--memory",
    type=Size(),
    default="1G",
    show_default=True,
    help="Limit of the host's processes and their page cache, by a cgroup; 0 for none.",
)
@click.option(
    "--memory-keys",
    type=click.IntRange(min=0),
    default=1_000_000,
    show_default=True,
    help="Of a host in memory, without a limit, to compare with; 0 to leave it out.",
)
@click.option("--seconds", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Of each load.")
@click.option("--warmup", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds before it.")
@click.option("--batch", type=click.IntRange(1, 5_000), default=100, show_default=True, help="Records of a message.")
@click.option("--rate", type=click.IntRange(min=1), default=1_000, show_default=True, help="Records a second, for p99.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False), help="Where a temporary folder is made.")
@MARKDOWN
@with_conf
@as_json
@gathered(Options)
def state(*, conf: Conf, options: Options) -> int:
    """Measure a host with state on disk, in less memory than its state takes.

    It needs no service, but lowtide[disk] and, for the limit, root. Records of popular keys (Zipf) and of all alike
    (uniform) go through both levels of a running count as fast as they can, and at a pace, which p99 is of; then a
    snapshot is written while records go on coming, a new process begins from it, and each key's state there is compared
    with what its records come to: `lost`. With --json the last line is one object.

    \b
    lowtide bench state --keys 10000000 --state-bytes 80 --memory 1G
    lowtide bench state --keys 1000000 --memory 0 --memory-keys 0 --set state.copies_max_gb=4
    lowtide bench state --keys 100000 --memory 256M --seconds 2 --warmup 1 --set state.memory_mb=8
    """  # noqa: D301 - click takes the character
    from lowtide.disk.store import lmdb
    from lowtide_bench import state_report
    from lowtide_bench.state.run import Asked, run

    lmdb()
    asked = Asked(
        keys=options.keys,
        state_bytes=options.state_bytes,
        memory_bytes=options.memory,
        memory_mb=conf.state.memory_mb,
        disk_max_gb=conf.state.disk_max_gb,
        copies_max_gb=conf.state.copies_max_gb,
        memory_keys=options.memory_keys,
        seconds=options.seconds,
        warmup_s=options.warmup,
        batch=options.batch,
        rate=options.rate,
        folder=options.folder,
    )
    with ended_by_sigterm(), progress() as say:
        result = run(asked, say)
    show(result, state_report, options)
    return 0

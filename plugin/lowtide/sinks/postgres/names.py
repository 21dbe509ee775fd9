"""Names in SQL, and of connections."""

from __future__ import annotations

import hashlib
import re

from lowtide.sinks.contract import LaneName

LONGEST = 40
LONGEST_BYTES = 63
"""Of a name: PostgreSQL cuts what is longer."""
BASE = 1 << 16
"""More than a job may have hash units."""
PUBLIC = "public"
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def table_of(name: str) -> str:
    """Return the name of a table, perhaps with its schema before a dot, as SQL."""
    return ".".join(map(quoted, name.split(".", 1)))


def schema_of(name: str) -> str:
    """Return the schema of a table's name as SQL; empty if the name has none."""
    schema, dot, _ = name.partition(".")
    return quoted(schema) if dot else ""


def whole_name(name: str) -> str:
    """Return the name of a table with its schema: the usual one, unless the server is set up otherwise.

    Example:
        >>> whole_name("orders"), whole_name("shop.orders")
        ('public.orders', 'shop.orders')
    """
    return name if "." in name else f"{PUBLIC}.{name}"


def application_of(job: str, incarnation: int) -> str:
    """Return the application's name of a life: PostgreSQL keeps 63 ASCII characters.

    Example:
        >>> application_of("shop", 7)
        'lowtide shop life 7'
    """
    plain = _PLAIN.fullmatch(job) is not None and len(job) <= LONGEST
    return f"lowtide {job if plain else hashlib.sha256(job.encode()).hexdigest()[:LONGEST]} life {incarnation}"


def number_of(lane: LaneName) -> int:
    """Return the number under which `lowtide.lanes` keeps a lane, or a strand: below 0, by its hash units.

    Example:
        >>> number_of(LaneName(0, "orders", 3)), number_of(LaneName(0, "orders", 64, 128))
        (3, -4194432)
    """
    return -(lane.lane * BASE + lane.end) if lane.end else lane.lane


def lane_of(sink: str, number: int) -> LaneName:
    """Return the lane, or strand, of a sink that has a number.

    Example:
        >>> lane_of("orders", 3), lane_of("orders", -4194432)
        (LaneName(level=0, sink='orders', lane=3, end=0), LaneName(level=0, sink='orders', lane=64, end=128))
    """
    return LaneName(0, sink, number) if number >= 0 else LaneName(0, sink, *divmod(-number, BASE))


def life_of(application: str, job: str) -> int | None:
    """Return which life of a job an application is; None if it is none."""
    before, _, number = application.rpartition(" ")
    return int(number) if number.isdigit() and f"{before} {number}" == application_of(job, int(number)) else None

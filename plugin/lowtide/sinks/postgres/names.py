"""Names in SQL, and of connections."""

from __future__ import annotations

import hashlib
import re

LONGEST = 40
LONGEST_BYTES = 63
"""Of a name: PostgreSQL cuts what is longer."""
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


def life_of(application: str, job: str) -> int | None:
    """Return which life of a job an application is; None if it is none."""
    before, _, number = application.rpartition(" ")
    return int(number) if number.isdigit() and f"{before} {number}" == application_of(job, int(number)) else None

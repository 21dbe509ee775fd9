"""Statements that make what a flow needs in PostgreSQL, printed or carried out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from lowtide.errors import ServiceUnavailable
from lowtide.sinks.errors import SchemaDiffers
from lowtide.sinks.postgres import tables
from lowtide.sinks.postgres.columns import Table, ddl_of
from lowtide.sinks.postgres.fit import changes_for
from lowtide.sinks.postgres.line import Refused, Unavailable, address_of, connected
from lowtide.sinks.postgres.names import schema_of


def statements_for(sinks: Mapping[str, Table], user: str) -> Iterator[str]:
    """Yield all statements, as for an empty database: the job's own tables, the sinks' tables, the rights."""
    yield "-- what Lowtide keeps there"
    yield from (f"{statement};" for statement in tables.MAKE)
    for sink, table in sorted(sinks.items()):
        yield f'-- sink "{sink}"'
        if schema := schema_of(table.name):
            yield f"create schema if not exists {schema};"
        yield ddl_of(table)
    yield "-- rights of the job's user, unless it made these itself"
    yield f"grant usage on schema lowtide to {user};"
    yield f"grant select, insert, update, delete on lowtide.jobs, lowtide.lanes, lowtide.floors to {user};"
    yield f"grant insert on lowtide.refused to {user};"
    for _, table in sorted(sinks.items()):
        yield f"grant {table.rights} on {table.sql} to {user};"


def apply(settings: Mapping[str, Any], sinks: Mapping[str, Table], limit_s: float) -> list[str]:
    """Make what is missing, in one transaction, and return the statements that did.

    Raises:
        SchemaDiffers: a table differs in a way that no statement mends without a loss; nothing is done.
        ServiceUnavailable: PostgreSQL does not answer, or does not allow it.
    """
    deadline, where = time.monotonic() + limit_s, address_of(settings)
    done: list[str] = []
    try:
        with closing(connected(settings, "lowtide sinks ddl", limit_s, lambda: deadline)) as line:
            line.ask("begin")
            if line.ask(tables.THERE) != [(True,)]:
                line.ask(tables.LOCK)
                done += tables.MAKE
            for sink, table in sorted(sinks.items()):
                faults, changes = changes_for(line, table)
                if len(faults) > len(changes):
                    raise SchemaDiffers(
                        f'sink "{sink}": {"; ".join(faults)}',
                        where=f"{where}, table {table.name}",
                        way_out="change the type yourself, or the sink's dataclass: --apply loses no value",
                    )
                done += [each for change in changes for each in change.split(";\n")]
            for statement in done:
                line.ask(statement)
            line.ask("commit")
    except (Unavailable, Refused) as error:
        raise ServiceUnavailable(
            f"PostgreSQL does not make the tables: {error}",
            where=where,
            way_out="check that it runs; let a user with the rights run what `lowtide sinks ddl` prints alone",
        ) from error
    return done

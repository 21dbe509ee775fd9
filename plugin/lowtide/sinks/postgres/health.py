"""Looks at a PostgreSQL before a job does: tables, rights, standbys, open transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from lowtide.errors import ServiceUnavailable
from lowtide.sinks.postgres.columns import Table
from lowtide.sinks.postgres.fit import changes_for
from lowtide.sinks.postgres.line import Line, Refused, Unavailable, address_of, connected

OPEN_TOO_LONG_S = 600
OWN = {
    "lowtide.jobs": "select, insert",
    "lowtide.lanes": "select, insert, update",
    "lowtide.floors": "select, insert, delete",
    "lowtide.refused": "insert",
}
"""Rights that a job needs on its own tables."""
RIGHTS = """
    select r.word from unnest($2::text[]) r(word)
    where to_regclass($1) is not null and not has_table_privilege(current_user, to_regclass($1), r.word)
"""
MAY_MAKE = "select to_regnamespace('lowtide') is not null or has_database_privilege(current_database(), 'create')"
STANDBYS = """
    select coalesce(application_name, ''), coalesce(sync_state, 'hidden'), current_setting('synchronous_commit')
    from pg_stat_replication where state is distinct from 'backup' order by 1
"""
LONG = """
    select pid, extract(epoch from now() - xact_start)::bigint from pg_stat_activity
    where xact_start < now() - make_interval(secs => $1) and backend_type = 'client backend'
    union all
    select 0, extract(epoch from now() - prepared)::bigint from pg_prepared_xacts
    where prepared < now() - make_interval(secs => $1)
    order by 2 desc limit 1
"""


class Concern(NamedTuple):
    """A finding about a database.

    Attributes:
        fatal: True if a job would end.
        found: What is so.
        way_out: What to do.
    """

    fatal: bool
    found: str
    way_out: str


def concerns_of(settings: Mapping[str, Any], sinks: Mapping[str, Table], limit_s: float) -> list[Concern]:
    """Return what is wrong with a database, and what may become so.

    Args:
        settings: Of libpq.
        sinks: The tables that a flow writes, by sink.
        limit_s: How long it may take.

    Raises:
        ServiceUnavailable: the database does not answer.
    """
    deadline = time.monotonic() + limit_s
    try:
        with closing(connected(settings, "lowtide doctor", limit_s, lambda: deadline)) as line:
            return [*_tables(line, sinks), *_rights(line, sinks), *_standbys(line), *_transactions(line)]
    except (Unavailable, Refused) as error:
        raise ServiceUnavailable(
            f"PostgreSQL does not answer: {error}",
            where=address_of(settings),
            way_out="check that it runs and takes writes, and [postgres] of the conf",
        ) from error


def _tables(line: Line, sinks: Mapping[str, Table]) -> Iterator[Concern]:
    for sink, table in sorted(sinks.items()):
        faults, _ = changes_for(line, table)
        if faults:
            way_out = "lowtide sinks ddl prints what to change, with --apply it does so"
            yield Concern(True, f'sink "{sink}", table {table.name}: {"; ".join(faults)}', way_out)


def _rights(line: Line, sinks: Mapping[str, Table]) -> Iterator[Concern]:
    if line.ask(MAY_MAKE) != [(True,)]:
        way_out = "lowtide sinks ddl prints the SQL for one who may, with the rights"
        yield Concern(True, "there is no schema lowtide, and the user may not make it", way_out)
    needed = OWN | {table.sql: table.rights for table in sinks.values()}
    for name, rights in needed.items():
        lacking = [right for (right,) in line.ask(RIGHTS, (name, rights.split(", ")))]
        if lacking:
            way_out = f"grant {', '.join(lacking)} on {name} to the job's user"
            yield Concern(True, f"the user may not {', '.join(lacking)} on {name}", way_out)


def _standbys(line: Line) -> Iterator[Concern]:
    found = line.ask(STANDBYS)
    if not found:
        return
    waits = found[0][2] != "local" and any(state in ("sync", "quorum") for _, state, _ in found)
    if all(state == "hidden" for _, state, _ in found):
        yield Concern(
            False, "there are standbys, and the user may not see whether they are synchronous", "grant pg_monitor"
        )
    elif not waits:
        names = ", ".join(sorted({name or "one without a name" for name, _, _ in found}))
        yield Concern(
            False,
            f"no standby is synchronous ({names}; synchronous_commit = {found[0][2]}): a failover may lose the last "
            "deliveries, which a job delivers again only if they are newer than its snapshot",
            "name one in synchronous_standby_names, and leave synchronous_commit on",
        )


def _transactions(line: Line) -> Iterator[Concern]:
    for pid, seconds in line.ask(LONG, (float(OPEN_TOO_LONG_S),)):
        what = f"a transaction of process {pid}" if pid else "a prepared transaction"
        yield Concern(
            False,
            f"{what} has been open for {seconds // 60} min, so vacuum skips lowtide.lanes: deliveries get slower",
            "end it",
        )

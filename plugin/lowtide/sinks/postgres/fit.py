"""Compares the tables that a flow writes with those that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowtide.sinks.errors import PlaceTaken, SchemaDiffers
from lowtide.sinks.postgres.columns import Table, ddl_of
from lowtide.sinks.postgres.line import Line
from lowtide.sinks.postgres.names import quoted, schema_of

COLUMNS = """
    select a.attname::text, format_type(a.atttypid, null), a.attnotnull,
           a.atthasdef or a.attidentity <> '' or a.attgenerated <> ''
    from pg_attribute a where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped
"""
WHICH = "select to_regclass($1)::oid::bigint"
UNIQUE = """
    select array_agg(a.attname::text) from pg_index i join pg_attribute a on a.attrelid = i.indrelid
    and a.attnum = any(i.indkey[0:i.indnkeyatts - 1])
    where i.indrelid = to_regclass($1) and i.indisunique and i.indisvalid and i.indimmediate
      and i.indpred is null and i.indexprs is null
    group by i.indexrelid
"""


def refuse_other(line: Line, tables: Mapping[str, Table], where: str) -> None:
    """See that each table can take its sink's rows, and has one sink (errors: SchemaDiffers, PlaceTaken)."""
    writers: dict[int, str] = {}
    for sink, table in sorted(tables.items()):
        faults, changes = changes_for(line, table)
        if faults:
            raise SchemaDiffers(
                f'sink "{sink}": {"; ".join(faults)}',
                where=f"{where}, table {table.name}",
                way_out="run `lowtide sinks ddl --apply`, or yourself:\n" + "\n".join(changes)
                if changes
                else "change the table, or the sink's dataclass",
            )
        [(oid,)] = line.ask(WHICH, (table.sql,))
        if (first := writers.setdefault(oid, sink)) != sink:
            raise PlaceTaken(
                f'sink "{sink}" writes the table of sink "{first}": their order would be by chance',
                where=f"{where}, tables {tables[first].name} and {table.name}",
                way_out="merge the streams before one sink, or give each a table of its own",
            )


def changes_for(line: Line, table: Table) -> tuple[list[str], list[str]]:
    """Return in what a table differs from what its sink needs, and statements that change that, if any do."""
    there = {name: rest for name, *rest in line.ask(COLUMNS, (table.sql,))}
    if not there:
        schema = schema_of(table.name)
        made = ddl_of(table)
        if schema and line.ask("select to_regnamespace($1) is null", (schema,)) == [(True,)]:
            made = f"create schema if not exists {schema};\n{made}"
        return [f"there is no table {table.name}"], [made]
    found = [*_columns(table, there), *_others(table, there)]
    if table.key is not None:
        key = table.columns[table.key].name
        if [key] not in [names for (names,) in line.ask(UNIQUE, (table.sql,))]:
            found.append((f"{key} has no unique index", f"alter table {table.sql} add unique ({quoted(key)});"))
    return [fault for fault, _ in found], [change for _, change in found if change]


def _columns(table: Table, there: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str]]:
    for column in table.kept:
        name, own = quoted(column.name), there.get(column.name)
        if own is None:
            null = "" if column.nullable else " not null"
            yield f"there is no column {column.name}", f"alter table {table.sql} add column {name} {column.type}{null};"
            continue
        kind, not_null, _ = own
        if kind != column.type and not (column.type == "text" and kind == "character varying"):
            yield f"column {column.name} is {kind}, but the sink writes {column.type}", ""
        if not_null and column.nullable:
            change = f"alter table {table.sql} alter column {name} drop not null;"
            yield f"column {column.name} is not null, but the sink may write null", change


def _others(table: Table, there: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str]]:
    """Find columns that the sink does not write and that need a value."""
    ours = {column.name for column in table.kept}
    for name, (_, not_null, given) in there.items():
        if name not in ours and not_null and not given:
            change = f"alter table {table.sql} alter column {quoted(name)} drop not null;"
            yield f"column {name} is not null and has no default, but the sink does not write it", change

"""Holds a table's columns against a sink's rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from lowtide.sinks.errors import SchemaDiffers


def missing_columns(place: str, there: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """Return the columns that a table lacks and may be given.

    Args:
        place: The table's name, for errors.
        there: Its columns.
        rows: The sink's.

    Raises:
        SchemaDiffers: a column is of another type, or is missing in old rows or new ones, which must have it.
    """
    known = {field.name: field for field in there}
    lacks = []
    for field in rows:
        found = known.pop(field.name, None)
        if found is None and not field.nullable:
            raise _differs(place, f'has no column "{field.name}", which no row may lack', f"give {field.name} | None")
        if found is None:
            lacks.append(field)
        elif _plain(found.type) != _plain(field.type):
            raise _differs(
                place, f'has column "{field.name}" of type {found.type}, the rows {field.type}', "give it the same type"
            )
        elif field.nullable and not found.nullable:
            raise _differs(place, f'has column "{field.name}", which cannot be null', "let the field not be None")
    for field in known.values():
        if not field.nullable:
            raise _differs(place, f'has column "{field.name}", which the rows lack', "add the field, or make it null")
    return pa.schema(lacks)


def _differs(place: str, what: str, way_out: str) -> SchemaDiffers:
    return SchemaDiffers(f"{place} {what}", way_out=f"{way_out} in the dataclass; or change the table")


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return a type without what readers choose: sizes of offsets, names of items, metadata."""
    for matches, plain in _SAME:
        if matches(type_):
            return plain
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("item", _plain(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(_plain(type_.key_type), pa.field("value", _plain(type_.item_type)))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in type_])
    return type_


_SAME: list[tuple[Callable[[pa.DataType], bool], pa.DataType]] = [
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
]

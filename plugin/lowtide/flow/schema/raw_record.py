"""The record of messages that are taken as they are."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

__all__ = ["Raw"]


class Raw(msgspec.Struct, frozen=True, gc=False):
    """A message as it is; a dataclass for all who ask `dataclasses`.

    One is made per message and one per result, and a frozen dataclass takes several times as long to make as a struct.
    """

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class _RawFields:
    key: bytes | None
    value: bytes | None


# What `dataclasses.fields` and `is_dataclass` look at, and `lowtide.flow.schema.schema` with them.
for _name in ("__dataclass_fields__", "__dataclass_params__"):
    setattr(Raw, _name, getattr(_RawFields, _name))

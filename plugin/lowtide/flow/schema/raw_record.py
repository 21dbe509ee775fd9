"""The record for messages taken as they are."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class Raw(msgspec.Struct, frozen=True, gc=False):
    """A message as it is; a dataclass to `dataclasses`.

    One is made per message and per result, and a frozen dataclass takes several times as long to make as a struct.

    Example:
        >>> lt.Raw(key=b"ada", value=None)
        Raw(key=b'ada', value=None)
    """

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class _RawFields:
    key: bytes | None
    value: bytes | None


# Read by `dataclasses.fields` and `is_dataclass`, and so by `lowtide.flow.schema.schema`.
for _name in ("__dataclass_fields__", "__dataclass_params__"):
    setattr(Raw, _name, getattr(_RawFields, _name))

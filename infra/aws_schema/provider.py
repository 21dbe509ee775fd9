"""Provider for Terraform that has the AWS provider's schemas and nothing else.

`python -m aws_schema.provider SCHEMAS.json`; with `--dev NAME` it keeps running and prints its address for Terraform,
so that many runs share one process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from terraform_provider import Kind, PlainProvider
from tf.iface import Config, DataSource, Resource, State
from tf.runner import run_provider
from tf.schema import Attribute, Block, NestedBlock, NestMode, Schema
from tf.types import Bool, List, Map, Number, Set, String, TfType
from tf.utils import Diagnostics

NESTING = {"single": 1, "list": 2, "set": 3}
"""Numbers of protocol 6."""

WRITE_ONLY = b"\x58\x01"
"""`write_only = true`, field 11 of protocol 6's Attribute; the framework's copy of the protocol is too old for it."""


class _Typed(String):  # type: ignore[misc]
    """A type that is only declared."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def tf_type(self) -> bytes:
        return json.dumps(self.kind).encode()


class _Attribute(Attribute):  # type: ignore[misc]
    """An attribute that may be write-only."""

    write_only = False

    def to_pb(self) -> Any:
        message = super().to_pb()
        if self.write_only:
            message.MergeFromString(WRITE_ONLY)
        return message


class _NestedBlock(NestedBlock):  # type: ignore[misc]
    """A block in any of the protocol's nestings, of which the framework has two."""

    def __init__(self, name: str, known: dict[str, Any]) -> None:
        block = known["block"]
        super().__init__(
            name,
            NestMode.Set,
            Block(attributes=_attributes(block), block_types=_blocks(block)),
            min_items=known["min"],
            max_items=known["max"],
        )
        self.nesting = NESTING[known["nesting"]]

    def to_pb(self) -> Any:
        message = super().to_pb()
        message.nesting = self.nesting
        return message

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, value: Any) -> Any:
        return value


def _attributes(known: dict[str, Any]) -> list[Attribute]:
    return [_attribute(name, given) for name, given in known["attributes"].items()]


def _attribute(name: str, given: dict[str, Any]) -> Attribute:
    flags = {flag: given.get(flag, False) for flag in ("required", "optional", "computed")}
    attribute = _Attribute(name, _type(given["type"]), **flags)
    attribute.write_only = given.get("write_only", False)
    return attribute


def _type(kind: Any) -> TfType:
    simple: dict[str, TfType] = {"string": String(), "number": Number(), "bool": Bool()}
    if isinstance(kind, str):
        return simple[kind]
    if kind[0] == "object" or isinstance(kind[1], list):
        return _Typed(kind)
    known: dict[str, Any] = {"list": List, "set": Set, "map": Map}
    made: TfType = known[kind[0]](simple[kind[1]])
    return made


def _blocks(known: dict[str, Any]) -> list[NestedBlock]:
    return [_NestedBlock(name, block) for name, block in known["blocks"].items()]


def _schema(known: dict[str, Any]) -> Schema:
    return Schema(attributes=_attributes(known), block_types=_blocks(known))


class _Unmade(Kind):
    """A resource or data source that is only declared."""

    def validate(self, _diags: Diagnostics, _type_name: str, _config: Config) -> None:
        """Leave it to Terraform, which compares with the schema."""

    def _refuse(self, *_arguments: Any) -> State:
        raise NotImplementedError("this provider has schemas only: it checks a configuration and cannot apply it")

    create = read = update = delete = plan = _refuse


class SchemaProvider(PlainProvider):
    """The provider; `schemas` as `aws_schema.binding` returns them."""

    prefix = "aws_"

    def __init__(self, schemas: dict[str, dict[str, Any]], name: str) -> None:
        self.schemas = schemas
        self.name = name

    def get_provider_schema(self, _diags: Diagnostics) -> Schema:
        """Return the schema of the provider's own block."""
        return _schema(self.schemas["provider"])

    def get_data_sources(self) -> list[Any]:
        """Return every data source of the schemas."""
        return self._kinds(DataSource, "data.aws_")

    def get_resources(self) -> list[Any]:
        """Return every resource of the schemas."""
        return self._kinds(Resource, "aws_")

    def _kinds(self, base: type, prefix: str) -> list[Any]:
        return [
            type(name, (_Unmade, base), {"kind": name.removeprefix(prefix), "schema": _schema(known)})
            for name, known in self.schemas.items()
            if name.startswith(prefix)
        ]


if __name__ == "__main__":
    known = json.loads(Path(sys.argv[1]).read_text())
    run_provider(SchemaProvider(known, sys.argv[-1]), sys.argv[1:])

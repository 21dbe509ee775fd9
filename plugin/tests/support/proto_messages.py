"""Generated Protobuf classes, made without protoc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto


def generated_by(fill: Callable[[FileDescriptorProto, DescriptorProto], None], syntax: str = "proto3") -> Any:
    """The class of message `test.M`, of a file that `fill` is given, and the message to be filled."""
    needs = ["google/protobuf/timestamp.proto"]
    file = FileDescriptorProto(name="test.proto", package="test", syntax=syntax, dependency=needs)
    fill(file, file.message_type.add(name="M"))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.M"))


def add_field(
    message: DescriptorProto,
    name: str,
    kind: str,
    of: str = "",
    *,
    many: bool = False,
    required: bool = False,
    oneof: str = "",
    optional: bool = False,
) -> None:
    """Add a field.

    Args:
        message: To what.
        name: Its name.
        kind: Its type as in a .proto file, or `message` or `enum`.
        of: Which message or enum, with its package and a dot before.
        many: Whether it is repeated.
        required: Whether it is, in proto2.
        oneof: The oneof that it is in.
        optional: Whether it is marked so in proto3.
    """
    label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(
        name=name,
        number=len(message.field) + 1,
        type=getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}"),
        label=FieldDescriptorProto.LABEL_REQUIRED if required else label,
        type_name=of or None,
    )
    if optional:
        field.proto3_optional = True
        oneof = f"_{name}"
    if oneof:
        known = [each.name for each in message.oneof_decl]
        if oneof not in known:
            message.oneof_decl.add(name=oneof)
            known.append(oneof)
        field.oneof_index = known.index(oneof)

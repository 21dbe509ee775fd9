"""Random logs for random flows: times that leap and go back, holes between offsets, and messages without records."""

from __future__ import annotations

import random

import interpreter
from interpreter import Came
from interpreter_bytes import dumped
from random_flows import Part, Thing

from lowtide.core.operators.order.order import Position
from lowtide.flow.schema.headers import pack_headers
from lowtide.local.run import Message

UNREADABLE: list[bytes | None] = [
    b"",
    b"{}",
    b"[1]",
    b'{"key":"a"}',
    b'{"key":1,"number":2}',
    b'{"key":"a","number":"2"}',
    b"\xff",
    None,
]
UNREADABLE += [b'{"key":"a","number":NaN}', b'{"key":"a","number":1} x', b'{"key":"a","number":1,"parts":[{}]}']
UNREADABLE += [b'{"key":"a","number":1,%s}' % each for each in (b'"mood":"angry"', b'"size":"m"', b'"named":{"a":"b"}')]
UNREADABLE += [b'{"key":"a","number":1,%s}' % each for each in (b'"at":"2026-01-31T12:00:00"', b'"data":"?"')]
UNREADABLE += [b'{"key":"a","number":9223372036854775808}', b'{"key":"a","number":1.0}']
ODD_TIMES = [b'{"number":1,"since":%d,"notes":[{"says":"x","written":[1]}]}' % ms for ms in (5, -5, 10**17)]
UNREADABLE += ODD_TIMES
UNREADABLE += [b'{"key":"a","number":null}', b'{"key":"\\ud800","number":1}', b'{"key":"a","number":true}']
ODD = [
    b' {"number": 4,\n"key":"\\u00e9\\n\\u0001\\"/\\u2028","what":[{"ever":1e400}]} ',
    b'{"number":7,"key":"","number":8}',
]
ODD += [b'{"key":"z","number":3,"at":"2026-01-31T12:00:00.5+02:00","named":{"x":1},"mood":"wild","data":"AAE="}']
HEADERS = [("trace-id", b"1"), ("trace-id", b"2"), ("trace-id", None), ("blob", b"\x00\xff"), ("trace-id", b"\xff")]
KEYS = ["a", "b", "ab", "\u6f6e \u20ac", "x" * 300]


def messages(dice: random.Random, front: int) -> list[Came]:
    """A log whose timestamps leap, stand and go back, with holes between its offsets, and messages without records."""
    at, offset, found = dice.choice([0, 1_000]), -1, []
    for _ in range(dice.randrange(12)):
        at, offset = at + dice.choice([0, 0, 1, 3, 20, -7]), offset + dice.choice([1, 1, 1, 2, 5])
        parts = tuple(Part(f"p{place}", place + 0.25) for place in range(dice.randrange(3)))
        value: bytes | None = dumped(Thing(dice.choice(KEYS), dice.randrange(-9, 30), dice.randrange(3), parts=parts))
        if dice.random() < 0.15:
            value = dice.choice([*UNREADABLE, *ODD])
        headers = tuple(dice.choice(HEADERS) for _ in range(dice.randrange(3)))
        key = dice.choice([None, b"k", b"\xff"])
        found.append(Came(front, offset, at, key, value, headers, f"topic of {front}", front % 3))
    return found


def logs(dice: random.Random, flow: interpreter.Flow) -> dict[str, list[Came]]:
    """A log for each source; sources of one topic have the same."""
    topics = {step.name: step.rest["source"].topic for step in flow.steps if step.kind == "read"}
    fronts, found = iter(range(100)), {}
    for topic in dict.fromkeys(topics.values()):
        found[topic] = [each for _ in range(dice.choice([1, 1, 2, 3])) for each in messages(dice, next(fronts))]
    return {name: found[topic] for name, topic in topics.items()}


def message_of(came: Came) -> Message:
    place, headers = Position(came.front, came.offset), pack_headers(came.headers)
    return Message(place, came.timestamp, came.key, came.value, headers, came.topic, came.partition)

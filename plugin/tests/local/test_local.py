"""`run_locally`: what a user's unit test sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from lowtide import Flow, Raw, json, kafka, raw
from lowtide.core.operators.faults.failure import Dead, MessageRefused, UserError
from lowtide.core.operators.order.order import Position
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.run import Message, Order, run_log


@dataclass(frozen=True)
class Document:
    name: str
    text: str


@dataclass(frozen=True)
class Word:
    word: str
    length: int


@dataclass(frozen=True)
class Price:
    shop: str
    price: float


def split(document: Document) -> Iterator[Word]:
    for word in document.text.split():
        yield Word(word, len(word))


def without_text(document: Document) -> Document:
    return replace(document, text="")


def is_long(word: Word) -> bool:
    return word.length > 2


DOCUMENTS, WORDS = kafka("documents", json(Document)), kafka("words", json(Word), key="word")


def counting(dead_letters: Any = None) -> Flow:
    flow = Flow("counting", dead_letters=dead_letters)
    flow.read("documents", DOCUMENTS).flat_map(split).filter(is_long).key_by("word").write("words", WORDS)
    return flow


def test_records_come_out_in_order_per_sink() -> None:
    flow = counting()
    written = flow.run_locally(documents=[Document("a", "to be or not"), Document("b", "the end")])
    assert written == {"words": [Word("not", 3), Word("the", 3), Word("end", 3)]}


def test_bytes_are_read_as_messages() -> None:
    assert counting().run_locally(documents=[b'{"name":"a","text":"not"}']) == {"words": [Word("not", 3)]}


def test_a_source_without_input_is_empty_and_an_unknown_one_refused() -> None:
    assert counting().run_locally() == {"words": []}
    with pytest.raises(FlowError, match="the flow has no source docs; it reads documents"):
        counting().run_locally(docs=[])


def test_an_input_of_another_type_is_refused() -> None:
    with pytest.raises(FlowError, match='source "documents" takes Document, bytes or Message, found Word'):
        counting().run_locally(documents=[Word("a", 1)])


def test_an_unreadable_message_stops_the_flow_or_becomes_a_dead_letter() -> None:
    with pytest.raises(MessageRefused, match="message refused: cannot be read as JSON of Document") as caught:
        counting().run_locally(documents=[b"{}"])
    assert "message at front 0, offset 0: b'{}'" in caught.value.where
    written = counting(kafka("dead", raw())).run_locally(documents=[b"nonsense", Document("a", "not")])
    assert written["words"] == [Word("not", 3)]
    (dead,) = written["dead-letters"]
    assert (dead.vertex, dead.position, dead.value) == ("documents", Position(0, 0), b"nonsense")


def test_a_function_that_raises_stops_the_flow_with_its_own_traceback() -> None:
    def inner(document: Document) -> Document:
        raise KeyError(document.name)

    def outer(document: Document) -> Document:
        return inner(document)

    flow = Flow("test")
    flow.read("documents", DOCUMENTS).map(outer).write("out", DOCUMENTS)
    with pytest.raises(UserError) as caught:
        flow.run_locally(documents=[Document("a", "b")])
    error = caught.value
    assert error.what == "step \"outer\": raised KeyError: 'a'"
    assert (error.vertex, error.position) == ("outer", Position(0, 0))
    assert "Document(name='a', text='b')" in error.where
    assert "in outer" in error.details
    assert "in inner" in error.details
    assert "lowtide" not in error.details.replace(__file__, "")


def test_a_function_sees_records_as_they_come_out_of_an_exchange() -> None:
    seen: list[type] = []

    def look(price: Price) -> Price:
        seen.append(type(price.price))
        return price

    prices = kafka("prices", json(Price))
    flow = Flow("test")
    step = flow.read("prices", prices).map(look, name="before", returns=Price)
    step.key_by("shop").map(look, name="behind", returns=Price).write("out", prices)
    flow.run_locally(prices=[Price("a", 3)])
    assert seen == [int, float]


def test_map_batches_runs_on_arrow() -> None:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        doubled = pa.compute.multiply(batch.column("length"), 2)
        return pa.RecordBatch.from_arrays([batch.column("word"), doubled], schema=batch.schema)

    import pyarrow.compute

    assert pyarrow.compute
    stream = kafka("words", json(Word))
    flow = Flow("test")
    flow.read("words", stream).map_batches(double, Word).write("out", stream)
    assert flow.run_locally(words=[Word("a", 1), Word("b", 2)]) == {"out": [Word("a", 2), Word("b", 4)]}
    assert flow.run_locally() == {"out": []}


def test_several_sources_branches_and_sinks() -> None:
    flow = Flow("test")
    documents = flow.read("documents", DOCUMENTS)
    documents.flat_map(split).write("words", WORDS)
    documents.map(without_text).write("names", DOCUMENTS)

    flow.read("more", kafka("more", raw())).write("copies", kafka("copies", raw()))
    written = flow.run_locally(documents=[Document("a", "to")], more=[b"x", Raw(b"k", None)])
    assert written == {
        "words": [Word("to", 2)],
        "names": [Document("a", "")],
        "copies": [Raw(None, b"x"), Raw(b"k", None)],
    }


def test_the_log_gives_bytes_per_lane_and_dead_letters() -> None:
    plan = compile_flow(counting(kafka("dead", raw())), units=16, parallelism=2, lanes=2)
    log = [
        Message(Position(3, 7), 1000, b"k", b'{"name":"a","text":"not the"}'),
        Message(Position(3, 9), 1001, None, None),
    ]
    delivered, dead = run_log(plan, {"documents": log})
    assert [(one.key, one.value, one.timestamp, one.order) for one in delivered["words"]] == [
        (b"not", b'{"word":"not","length":3}', 1000, Order(500, 3, 7, (1,))),
        (b"the", b'{"word":"the","length":3}', 1000, Order(500, 3, 7, (2,))),
    ]
    assert {one.lane for one in delivered["words"]} <= {0, 1}
    message = "cannot be read as JSON of Document: a null value is not JSON"
    assert dead == [Dead("documents", Position(3, 9), 1000, message, None, None)]

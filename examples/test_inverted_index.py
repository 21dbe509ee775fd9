"""The flow here and now: no Spark, no services."""

from inverted_index import Change, Document, Index, flow, update_index


def test_a_new_version_of_a_document_changes_the_index() -> None:
    documents = [Document("a", "to be"), Document("b", "to do to"), Document("a", "to see")]
    assert flow.run_locally(documents=documents)["index"] == [
        Change("be", "a", 1, 0),
        Change("to", "a", 1, 0),
        Change("do", "b", 1, 0),
        Change("to", "b", 2, 0),
        Change("be", "a", 0, 1),
        Change("see", "a", 1, 0),
    ]


def test_the_same_version_again_changes_nothing() -> None:
    assert flow.run_locally(documents=[Document("a", "to be"), Document("a", "be to")])["index"] == [
        Change("be", "a", 1, 0),
        Change("to", "a", 1, 0),
    ]


def test_the_index_of_a_word_forgets_documents_that_lost_it() -> None:
    index, change = update_index(Index({"a": 2, "b": 1}), Change("to", "a", 0, 2))
    assert index == Index({"b": 1})
    assert change.removed == 2

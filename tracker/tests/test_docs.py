import doctest
import importlib
import re
from pathlib import Path

import pytest

import lowtide_tracker
from lowtide_tracker import Flush
from lowtide_tracker.wire import Kind, encode

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize("module", ["tracker", "graph", "relay"])
def test_the_examples_of_docstrings_hold(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"lowtide_tracker.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_name_can_be_loaded() -> None:
    for name in lowtide_tracker.__all__:
        assert getattr(lowtide_tracker, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Sharded'"):
        lowtide_tracker.Sharded  # noqa: B018


def test_the_protocol_page_names_every_kind_of_message() -> None:
    rows = re.findall(r"^\| (\d+) \| (?:client|worker|tracker|shard|merge|relay) \| (\w+) \|", README, re.MULTILINE)
    written = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(): int(kind) for kind, name in rows}
    assert written == {kind.name: kind.value for kind in Kind}


def test_the_protocol_page_s_flush_is_what_is_sent() -> None:
    block = next(block for block in README.split("```") if "length 18, Flush" in block)
    written = " ".join(line.split("   ")[0] for line in block.strip().splitlines())
    assert bytes.fromhex(written) == encode(Flush.of(7, 258, [(1, 5, 171)], [(4, 6)]))

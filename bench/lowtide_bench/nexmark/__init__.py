"""Nexmark's queries on Spark and Kafka: compared with DuckDB, and measured. The flows are the repository's examples."""

from __future__ import annotations

import sys
from pathlib import Path

from lowtide.errors import LowtideError

__all__ = ["NAMES", "ExamplesMissing", "find_examples"]

NAMES = tuple(f"q{number}" for number in range(9))
EXAMPLES = Path(__file__).parents[3] / "examples"


class ExamplesMissing(LowtideError):
    """The examples are missing: run it from a clone of the repository, which holds the measured flows."""


def find_examples() -> None:
    """Make `nexmark` importable from the clone's `examples/`.

    Raises:
        ExamplesMissing: there are none.
    """
    if not (EXAMPLES / "nexmark/queries.py").is_file():
        raise ExamplesMissing(
            f"Nexmark's flows are not in {EXAMPLES}",
            way_out="run lowtide bench in the environment of a clone (make env)",
        )
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))

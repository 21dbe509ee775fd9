"""The command line: `lowtide …`, and `python flow.py` for a program that calls `lowtide.main(flow)`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lowtide.flow.steps.graph import FlowGraph

__all__ = ["main", "main_flow"]


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    from lowtide.cli.main import run

    sys.exit(run(sys.argv[1:]))


def main_flow(flow: FlowGraph) -> None:
    """Run a flow with the arguments of this process, and exit with the code.

    It does what `lowtide run` does with a file; if the first argument is `recover`, what `lowtide recover` does.
    """
    from lowtide.cli.main import run

    arguments = sys.argv[1:]
    command = [] if arguments[:1] == ["recover"] else ["run"]
    sys.exit(run([*command, *arguments], given=flow))

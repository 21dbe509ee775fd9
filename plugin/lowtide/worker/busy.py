"""Looks at what a host's loop does, one each second: the step that it is in, and the flow's function.

A look costs some microseconds. It is a sample of wall-clock time: a function that waits counts like one that computes,
as the loop does nothing else in either.
"""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from lowtide.flow.plan.plan import Vertex
from lowtide.status.gauges import LoopLooks, StepLooks
from lowtide.worker.stage import LevelStage

_OURS = str(Path(__file__).parents[1])
_PYTHONS = sysconfig.get_path("stdlib")


@dataclass(frozen=True, slots=True)
class Doing:
    """The worker, step and function that a loop is in at one moment.

    Attributes:
        worker: The worker that it works for; empty for none.
        step: The step that it is in; empty for none.
        function: The flow's function, with file and line; empty if it is in none.
    """

    worker: str = ""
    step: str = ""
    function: str = ""


def doing(frame: FrameType | None) -> Doing:
    """Return what a loop does whose innermost frame is this one."""
    worker = step = ""
    at = frame
    while at is not None and not worker:
        if at.f_code.co_filename.startswith(_OURS):
            owner = at.f_locals.get("self")
            vertex = getattr(owner, "vertex", None)
            if not step and isinstance(vertex, Vertex):
                step = vertex.name
            if isinstance(owner, LevelStage):
                worker = owner.name
        at = at.f_back
    return Doing(worker, step, called(frame)) if step and worker else Doing()


def called(frame: FrameType | None) -> str:
    """Return the flow's function that a frame runs in, with file and line; empty if in none.

    It is the outermost that is neither ours nor Python's, below all that are ours.
    """
    found: FrameType | None = None
    at = frame
    while at is not None and not at.f_code.co_filename.startswith(_OURS):
        found, at = at, at.f_back
    if found is None or _is_pythons(found.f_code.co_filename):
        return ""
    code = found.f_code
    return f"{code.co_qualname} ({code.co_filename}:{found.f_lineno})"


def _is_pythons(file: str) -> bool:
    return file.startswith(("<frozen", _PYTHONS)) and "-packages" not in file


class Busy:
    """Counts of the looks at one loop."""

    def __init__(self) -> None:
        self._looks = 0
        self._steps: dict[str, StepLooks] = {}

    def look(self, frame: FrameType | None) -> Doing:
        """Take one look; return what it has found."""
        found = doing(frame)
        self._looks += 1
        if found.step:
            before = self._steps.get(found.step, StepLooks())
            function = found.function or before.function
            self._steps[found.step] = StepLooks(looks=before.looks + 1, function=function, worker=found.worker)
        return found

    def gauges(self) -> LoopLooks:
        """Return the counts since the beginning."""
        return LoopLooks(looks=self._looks, steps=dict(self._steps))

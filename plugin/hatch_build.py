"""Build hook of the wheel and the sdist: nothing is packed without the Java shim that belongs to the code."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShimThere(BuildHookInterface[Any]):
    """Ends the build where the shim's jar is missing, cannot be read, or is older than its sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling; an editable install takes the jar when it is there."""
        if version != "editable" and (fault := _shim_fault(Path(self.root))):
            self.app.abort(f"error: {fault}\n       in a clone: make wheels builds it and all four wheels")


def _shim_fault(root: Path) -> str:
    # Hatchling alone is installed where a wheel is built, so the package is not imported as a whole.
    package = ModuleType("lowtide")
    package.__path__ = [str(root / "lowtide")]
    sys.modules["lowtide"] = package
    return str(import_module("lowtide.jars.shim").shim_fault())

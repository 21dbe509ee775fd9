"""Keeps pyarrow from importing pandas before the program does.

pyarrow's first array of Python objects imports pandas if it is installed, only to ask whether the objects are pandas'
own: two seconds of CPU in every process that compiles a flow or writes a snapshot. Most of them never see pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

PANDAS = "pandas"


def leave_pandas_for_later(*modules: str) -> None:
    """Let pyarrow assume that there is no pandas until it is imported; then tell pyarrow at once.

    Call it before other threads run, and before arrays are made. It does nothing if pandas is imported already.

    Args:
        modules: Others that only check for pandas when they are imported; they are imported now.
    """
    if PANDAS in sys.modules:
        return
    import pyarrow

    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Later)]
    later = _Later()
    sys.meta_path.insert(0, later)
    pyarrow.array([0])
    for name in modules:
        import_module(name)
    later.asked = True


class _Later(MetaPathFinder):
    """Hides pandas while pyarrow looks for it; afterwards an import of it informs pyarrow."""

    def __init__(self) -> None:
        self.asked = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != PANDAS:
            return None
        if not self.asked:
            raise ModuleNotFoundError("it is left for later", name=PANDAS)
        sys.meta_path.remove(self)
        spec = find_spec(PANDAS)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


class _Telling(Loader):
    """Loads pandas as its own loader does, and has pyarrow look for it again."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        import pyarrow

        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        # Asked for its version, pyarrow imports what it had not found; one that is too old for it stays unknown.
        try:
            _ = pyarrow.lib._pandas_api.version
        except ImportError:
            return

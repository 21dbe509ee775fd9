"""Loads a flow from the user's Python file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from lowtide.errors import FlowError
from lowtide.flow.parameters import refuse_unasked
from lowtide.flow.steps.graph import FlowGraph


def load_flow(path: str) -> FlowGraph:
    """Import a Python file and find its flow.

    The file's folder is put on the import path, as Python does for a script, so modules beside it can be imported; the
    `if __name__ == "__main__":` part does not run.

    Args:
        path: `flow.py`, or `flow.py:name` for the variable to take if there are several flows.

    Raises:
        FlowError: the file does not exist, holds no flow or several, or raises when imported; or the start is given
            a parameter that the flow does not ask for.
    """
    flow = _load(path)
    refuse_unasked(flow.name, flow.parameters)
    return flow


def _load(path: str) -> FlowGraph:
    file, variable = _split(path)
    if not file.is_file():
        raise FlowError(f"{file} does not exist", way_out="name a Python file that makes a Flow")
    module = _import(file.resolve())
    if variable is not None:
        flow = getattr(module, variable, None)
        if not isinstance(flow, FlowGraph):
            raise FlowError(f"{file} has no flow named {variable}", way_out=_offer(module))
        return flow
    flows = _flows(module)
    distinct = len(set(map(id, flows.values())))
    if distinct != 1:
        count = f"{distinct} flows" if flows else "no flow"
        raise FlowError(f"{file} makes {count}", way_out=_offer(module))
    return next(iter(flows.values()))


def _split(path: str) -> tuple[Path, str | None]:
    file, colon, variable = path.rpartition(":")
    if colon and variable.isidentifier() and not Path(path).exists():
        return Path(file), variable
    return Path(path), None


def _import(file: Path) -> ModuleType:
    name = _module_name(file)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise FlowError(f"{file} is not a Python file", way_out="name a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed(file, error) from error
    return module


def _module_name(file: Path) -> str:
    """Return the name under which modules beside the file would import it, unless another module has it."""
    taken = sys.modules.get(file.stem)
    if not file.stem.isidentifier() or (taken is not None and getattr(taken, "__file__", None) != str(file)):
        return f"lowtide_flow_{abs(hash(str(file)))}"
    return file.stem


def _failed(file: Path, error: BaseException) -> FlowError:
    if isinstance(error, FlowError):
        return error
    traceback = error.__traceback__
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(file):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    if isinstance(error, SyntaxError) and error.filename == str(file):
        line = error.lineno or 0
    where = f"{file}:{line}" if line else str(file)
    return FlowError(f"importing the flow's file raised {type(error).__name__}: {error}", where=where)


def _flows(module: ModuleType) -> dict[str, FlowGraph]:
    return {name: value for name, value in vars(module).items() if isinstance(value, FlowGraph)}


def _offer(module: ModuleType) -> str:
    flows = _flows(module)
    if not flows:
        return 'make one at the top of the file: flow = Flow("name")'
    return "choose one: " + ", ".join(f"{Path(str(module.__file__)).name}:{name}" for name in flows)

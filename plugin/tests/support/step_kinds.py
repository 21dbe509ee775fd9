"""All kinds of steps, wherever they stand in `lowtide/flow/steps`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import lowtide.flow.steps as folder
from lowtide.flow.steps.steps import Step

_FILES = [import_module(each.name) for each in iter_modules(folder.__path__, f"{folder.__name__}.")]
_CLASSES = {each for file in _FILES for each in vars(file).values() if isinstance(each, type)}

KINDS: set[type[Step]] = {each for each in _CLASSES if issubclass(each, Step)} - {Step}

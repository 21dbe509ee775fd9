"""What must be the same in every Python process of a job."""

import platform
import sys
from importlib.metadata import version

PACKAGES = ("lowtide", "pyarrow", "numpy", "msgspec", "cloudpickle")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that frames and pickled functions depend on."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str:
    module = sys.modules.get(name)
    own = getattr(module, "__version__", None)
    return str(own) if own else version(name)

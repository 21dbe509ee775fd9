"""The jar of Lowtide's Java shim: where it is, and whether it is the one that belongs to this Python code."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from lowtide.version import __version__

SHIM = Path(__file__).with_name("lowtide-shim.jar")
"""Built into the package: `lowtide.jars.build`, and part of the wheel."""

_SOURCES = Path(__file__).parents[2] / "jvm" / "src"
_VERSION, _DIGEST = "Lowtide-Version", "Lowtide-Sources"


def shim_jar() -> Path:
    """Return the jar.

    Raises:
        JarMissing: it is not there, or was built from other sources or for another version.
    """
    # The build hook asks for the fault where nothing else is installed.
    from lowtide.errors import JarMissing

    fault = shim_fault()
    if fault:
        raise JarMissing(
            fault,
            where=str(SHIM),
            # Only a clone has what it is built from.
            way_out="build it: python -m lowtide.jars.build (in a clone: make jar)"
            if _SOURCES.is_dir()
            else f"install a wheel of lowtide {__version__} that has it (in a clone: make wheels)",
        )
    return SHIM


def shim_fault() -> str:
    """Return what is wrong with the jar, empty if nothing is."""
    if not SHIM.is_file():
        return "the jar of the Java shim is missing"
    try:
        with zipfile.ZipFile(SHIM) as archive:
            said = archive.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return f"cannot read the jar of the Java shim: {error}"
    found = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    if found.get(_VERSION) != __version__:
        return f"the jar of the Java shim has version {found.get(_VERSION)}, but Lowtide is {__version__}"
    if _SOURCES.is_dir() and found.get(_DIGEST) != sources_digest():
        return "the jar of the Java shim is older than its sources"
    return ""


def source_files() -> list[Path]:
    """Return the Java sources of a clone; empty in an installed wheel."""
    return sorted(_SOURCES.rglob("*.java"))


def sources_digest() -> str:
    """Return a digest of the names and contents of all sources."""
    digest = hashlib.sha256()
    for path in source_files():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_SOURCES)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:40]


def manifest() -> str:
    """Return the manifest of a jar that is built now."""
    return f"Manifest-Version: 1.0\n{_VERSION}: {__version__}\n{_DIGEST}: {sources_digest()}\n"

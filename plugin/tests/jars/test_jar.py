"""The shim's jar: one that does not belong to this Python code is refused, and the same sources give the same bytes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from lowtide.errors import JarMissing
from lowtide.jars import build
from lowtide.jars import shim as jar
from lowtide.version import __version__


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar in a folder of its own, as fresh as it can be."""
    path = tmp_path / "shim.jar"
    monkeypatch.setattr(jar, "SHIM", path)
    monkeypatch.setattr(build, "SHIM", path)
    write(path, jar.manifest())
    return path


def write(path: Path, manifest: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", manifest)


def test_a_fresh_jar_is_taken(shim: Path) -> None:
    assert jar.shim_jar() == shim


def test_a_missing_jar_is_named_with_the_way_to_build_it(shim: Path) -> None:
    shim.unlink()
    with pytest.raises(JarMissing, match="is missing") as caught:
        jar.shim_jar()
    assert str(shim) in str(caught.value)
    assert "make jar" in str(caught.value)


def test_an_installation_without_sources_is_not_asked_to_build(shim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "_SOURCES", shim.parent / "nowhere")
    shim.unlink()
    for missing in (jar.shim_jar, build.build):
        with pytest.raises(JarMissing, match="install a wheel of lowtide"):
            missing()
    assert not shim.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (__version__, "0.0.1", f"has version 0.0.1, but Lowtide is {__version__}"),
        (jar.sources_digest(), "0" * 40, "is older than its sources"),
    ],
    ids=["another version", "other sources"],
)
def test_a_stale_jar_is_refused(shim: Path, old: str, new: str, said: str) -> None:
    write(shim, jar.manifest().replace(old, new))
    with pytest.raises(JarMissing, match=said):
        jar.shim_jar()


def test_a_damaged_jar_is_refused(shim: Path) -> None:
    shim.write_bytes(b"no jar")
    with pytest.raises(JarMissing, match="cannot read"):
        jar.shim_jar()


@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes(shim: Path) -> None:
    made = []
    for _ in range(2):
        shim.unlink()
        build.build()
        made.append(shim.read_bytes())
    assert made[0] == made[1]
    assert jar.shim_fault() == ""

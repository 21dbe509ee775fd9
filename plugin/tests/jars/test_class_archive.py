"""Archives of loaded classes: one per Java and list of jars, used where it is there, never half made."""

import os
import subprocess
from pathlib import Path

import pytest

from lowtide.jars.class_archive import KEPT, ClassArchive
from lowtide.jars.java import java_executable


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "cache"))
    # With it every JVM prints a line of its own.
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)


@pytest.fixture(name="jar")
def _jar(tmp_path: Path) -> Path:
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"jar")
    return jar


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Let a JVM do something small."""
    java = java_executable()
    assert java is not None
    command = [str(java), "-Xshare:auto", *options, "--list-modules"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


def test_what_was_made_is_used_and_said_nothing_about(jar: Path) -> None:
    archive = ClassArchive("toy", [jar])
    assert archive.options() == []
    with archive.made():
        making = archive.options()
        assert making[0].startswith("-XX:ArchiveClassesAtExit=")
        run(*making)
        assert not archive.path.exists(), "it is there when it is whole"
    assert archive.path.stat().st_size > 100_000
    used = run(*archive.options(), "-Xlog:class+load=info")
    assert "shared objects file (top)" in used.stdout
    assert run(*archive.options()).stderr == ""


def test_what_failed_leaves_nothing(jar: Path) -> None:
    archive = ClassArchive("toy", [jar])
    with pytest.raises(ZeroDivisionError), archive.made():
        assert run(*archive.options()).returncode / 0
    with archive.made():
        pass
    assert archive.options() == []
    assert list(archive.path.parent.iterdir()) == []


def test_other_jars_have_another(jar: Path) -> None:
    before = ClassArchive("toy", [jar]).path
    assert ClassArchive("toy", [jar]).path == before
    os.utime(jar, ns=(1, 1))
    assert ClassArchive("toy", [jar]).path != before


def test_the_newest_are_kept(jar: Path) -> None:
    paths = []
    for second in range(KEPT + 2):
        os.utime(jar, (second, second))
        archive = ClassArchive("toy", [jar])
        with archive.made():
            run(*archive.options())
        os.utime(archive.path, (second, second))
        paths.append(archive.path)
    other = ClassArchive("other", [jar])
    with other.made():
        run(*other.options())
    assert sorted(archive.path.parent.iterdir()) == sorted([*paths[-KEPT:], other.path])


def test_without_java_there_is_none_and_nobody_stumbles(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert ClassArchive("toy", [jar]).options() == []


def test_half_of_one_is_none(jar: Path) -> None:
    archive = ClassArchive("toy", [jar])
    with archive.made():
        draft = archive.options()[0].partition("=")[2]
        Path(draft).write_bytes(bytes(4096) + b"regions come before the head")
    assert archive.options() == []

"""Archives of loaded classes: one per Java and list of jars, used where it is there, never half made."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hanging import HANGS_S

from lowtide.jars.class_archive import KEPT, ClassArchive
from lowtide.jars.java import java_executable
from lowtide.jars.third_party import pyspark_folder

MAKER = """
import sys
from pathlib import Path
from lowtide.jars.class_archive import ClassArchive

archive = ClassArchive("toy", [Path(sys.argv[1])])
with archive.made():
    Path(archive.options()[0].partition("=")[2]).write_bytes(b"whole")
    print("making", flush=True)
    sys.stdin.read()
"""


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
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANGS_S)


@pytest.fixture(name="ivy")
def _ivy(tmp_path: Path) -> Path:
    """A jar with something to run, in a folder of its own."""
    (jar,) = (pyspark_folder() / "jars").glob("ivy-*.jar")
    (tmp_path / "first").mkdir()
    return Path(shutil.copy2(jar, tmp_path / "first" / "ivy.jar"))


@pytest.fixture(name="maker")
def _maker() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Another process that makes an archive of a jar, until its stdin is closed."""
    makers: list[subprocess.Popen[str]] = []

    def start(jar: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", MAKER, str(jar)]
        makers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert makers[-1].stdout is not None
        assert makers[-1].stdout.readline() == "making\n"
        return makers[-1]

    yield start
    for each in makers:
        each.kill()
        each.communicate()


def run_ivy(jar: Path, *options: str) -> int:
    """Let a JVM run Ivy, and count the classes that it takes from an archive."""
    java = java_executable()
    assert java is not None
    command = [
        str(java),
        "-Xshare:auto",
        *options,
        "-Xlog:class+load",
        "-cp",
        str(jar),
        "org.apache.ivy.Main",
        "-version",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANGS_S)
    assert "Apache Ivy" in done.stdout
    return sum("org.apache.ivy" in line and "(top)" in line for line in done.stdout.splitlines())


def rehearsed(jar: Path) -> ClassArchive:
    archive = ClassArchive("ivy", [jar])
    with archive.made():
        run_ivy(jar, *archive.options())
    return archive


def linked(jar: Path, folder: str) -> Path:
    """Another environment's link of the same file."""
    link = jar.parent.parent / folder / jar.name
    link.parent.mkdir()
    link.hardlink_to(jar)
    return link


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
    assert list(archive.path.parent.parent.iterdir()) == []


def test_other_jars_have_another(jar: Path) -> None:
    before = ClassArchive("toy", [jar]).path
    assert ClassArchive("toy", [jar]).path == before
    os.utime(jar, ns=(1, 1))
    assert ClassArchive("toy", [jar]).path != before


def test_the_order_of_the_class_path_counts(jar: Path) -> None:
    other = jar.with_name("two.jar")
    other.write_bytes(b"another")
    assert ClassArchive("toy", [jar, other]).path != ClassArchive("toy", [other, jar]).path


def test_one_serves_every_link_of_the_same_jars_while_those_it_was_made_from_are_there(ivy: Path) -> None:
    made = rehearsed(ivy)
    second = linked(ivy, "second")
    archive = ClassArchive("ivy", [second])
    assert archive.path == made.path
    classes = run_ivy(second, *archive.options())
    assert classes == run_ivy(ivy, *made.options()) > 0
    ivy.unlink()
    assert run_ivy(second, f"-XX:SharedArchiveFile={made.path}") == 0, "the JVM does without it, so it is none"
    assert archive.options() == []
    again = rehearsed(second)
    assert again.path == made.path
    assert run_ivy(linked(second, "third"), *again.options()) == classes


def test_a_copy_has_none_though_it_looks_the_same(ivy: Path) -> None:
    made = rehearsed(ivy)
    (ivy.parent.parent / "second").mkdir()
    copy = Path(shutil.copy2(ivy, ivy.parent.parent / "second"))
    assert run_ivy(copy, f"-XX:SharedArchiveFile={made.path}") == 0, "the JVM does without it, so it is none"
    assert ClassArchive("ivy", [copy]).options() == []


def test_the_newest_are_kept(jar: Path) -> None:
    paths = []
    for second in range(KEPT + 2):
        os.utime(jar, (second, second))
        archive = ClassArchive("toy", [jar])
        with archive.made():
            run(*archive.options())
        os.utime(archive.path.parent, (second, second))
        paths.append(archive.path.parent)
    other = ClassArchive("other", [jar])
    with other.made():
        run(*other.options())
    assert sorted(other.path.parent.parent.iterdir()) == sorted([*paths[-KEPT:], other.path.parent])


def test_a_killed_makers_draft_is_removed_and_a_live_ones_is_not(
    jar: Path, maker: Callable[[Path], subprocess.Popen[str]]
) -> None:
    archive = ClassArchive("toy", [jar])
    killed, live = maker(jar), maker(jar)
    killed.kill()
    killed.wait()
    drafts = set(archive.path.parent.parent.iterdir())
    with ClassArchive("other", [jar]).made():
        pass
    assert set(archive.path.parent.parent.iterdir()) == drafts, "one of them is at work"
    live.communicate()
    assert live.returncode == 0
    assert list(archive.path.parent.parent.iterdir()) == [archive.path.parent]
    assert archive.there


def test_of_two_makers_at_once_each_ends_well(jar: Path, maker: Callable[[Path], subprocess.Popen[str]]) -> None:
    for each in [maker(jar), maker(jar)]:
        each.communicate()
        assert each.returncode == 0
    assert ClassArchive("toy", [jar]).there


def test_without_java_there_is_none_and_nobody_stumbles(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert ClassArchive("toy", [jar]).options() == []


def test_half_of_one_is_none(jar: Path) -> None:
    archive = ClassArchive("toy", [jar])
    with archive.made():
        draft = archive.options()[0].partition("=")[2]
        Path(draft).write_bytes(bytes(4096) + b"regions come before the head")
    assert archive.options() == []

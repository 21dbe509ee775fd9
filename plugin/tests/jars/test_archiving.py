"""A JVM that starts without an archive lists its classes, and another process makes the archive of the list."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hanging import HANGS_S

from lowtide.jars.archiving import _alone, archive_later, class_path_of, command_of, list_of, lists_classes, make
from lowtide.jars.class_archive import ClassArchive
from lowtide.jars.java import java_executable
from lowtide.jars.third_party import pyspark_folder
from lowtide.process.mark import VARIABLE, marked

SERVES = ("-m", "java.rmi/sun.rmi.registry.RegistryImpl", "0")
"""Something that runs until it is killed."""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)


@pytest.fixture(name="jar")
def _jar(tmp_path: Path) -> Path:
    (jar,) = (pyspark_folder() / "jars").glob("ivy-*.jar")
    return Path(shutil.copy2(jar, tmp_path / "ivy.jar"))


@pytest.fixture(name="archive")
def _archive(jar: Path) -> ClassArchive:
    return ClassArchive("ivy", [jar])


@pytest.fixture(name="jvm")
def _jvm(archive: ClassArchive, jar: Path) -> Iterator[subprocess.Popen[str]]:
    """One that runs, and lists what it loads."""
    lists = archive.options(lists=True)
    command = [str(java_executable()), *lists, "-XX:+UseSerialGC", "-Xmx64m", "-cp", str(jar), *SERVES]
    jvm = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    loaded, until = list_of(lists), time.monotonic() + HANGS_S
    assert loaded is not None
    # The launcher runs itself anew before there is a JVM.
    while not loaded.exists() and time.monotonic() < until:
        time.sleep(0.01)
    yield jvm
    jvm.kill()
    jvm.communicate()


def ivy(jar: Path, *options: str) -> tuple[int, str]:
    """Let a JVM run Ivy, and count its classes that come from an archive; its output, too."""
    command = [str(java_executable()), "-XX:+UseSerialGC", *options, "-Xlog:class+load", "-cp", str(jar)]
    command += ["org.apache.ivy.Main", "-version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANGS_S)
    assert "Apache Ivy" in done.stdout
    lines = done.stdout.splitlines()
    return sum("org.apache.ivy" in line and "shared objects file" in line for line in lines), done.stderr


def listed(archive: ClassArchive, jar: Path) -> Path:
    options = archive.options(lists=True)
    ivy(jar, *options)
    found = list_of(options)
    assert found is not None
    return found


def left(archive: ClassArchive) -> list[Path]:
    return sorted(archive.path.parent.parent.iterdir())


def test_an_archive_is_made_of_a_list_and_the_list_goes(archive: ClassArchive, jar: Path) -> None:
    make(archive, listed(archive, jar), str(jar), ["-XX:+UseSerialGC"])
    assert archive.there
    assert left(archive) == [archive.path.parent]
    classes, said = ivy(jar, *archive.options(lists=True))
    assert classes > 10
    assert said == ""


def test_a_line_that_is_being_written_does_no_harm(archive: ClassArchive, jar: Path) -> None:
    loaded = listed(archive, jar)
    with loaded.open("a") as file:
        file.write("@lambda-proxy org/apa")
    make(archive, loaded, str(jar), ["-XX:+UseSerialGC"])
    assert ivy(jar, *archive.options())[0] > 10


def test_a_jvm_that_cannot_make_it_leaves_nothing(archive: ClassArchive, jar: Path) -> None:
    loaded = listed(archive, jar)
    with pytest.raises(subprocess.CalledProcessError):
        make(archive, loaded, str(jar), ["-XX:NoSuchOption"])
    assert not archive.there
    assert left(archive) == []
    assert list_of(archive.options(lists=True)) is not None, "the next JVM tries again"


def test_of_two_makers_at_once_one_gives_way(archive: ClassArchive, jar: Path) -> None:
    loaded = listed(archive, jar)
    with _alone(archive.path.parent.name) as alone:
        assert alone
        make(archive, loaded, str(jar), ["-XX:+UseSerialGC"])
    assert not archive.there
    assert left(archive) == []


def test_a_running_jvms_archive_is_made_by_a_process_that_is_not_the_jobs(
    archive: ClassArchive, jvm: subprocess.Popen[str], jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "a-life")
    command = command_of(jvm.pid)
    assert class_path_of(command) == str(jar)
    assert lists_classes(jvm.pid)
    maker = archive_later(archive, jvm.pid, after_s=0.0)
    assert maker is not None
    assert marked("a-life") == []
    assert os.getsid(maker.pid) == maker.pid
    assert maker.wait(HANGS_S) == 0
    assert archive.there
    assert jvm.poll() is None
    assert archive_later(archive, jvm.pid) is None, "it is there"
    assert not lists_classes(jvm.pid)


def test_a_jvm_that_lists_nothing_has_none_made(archive: ClassArchive) -> None:
    assert archive_later(archive, os.getpid()) is None
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert archive_later(archive, ended.pid) is None


def test_without_java_or_a_cache_that_takes_it_nothing_is_listed(
    archive: ClassArchive, jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list_of(archive.options()) is None, "only where it is asked for"
    (tmp_path / "file").touch()
    with monkeypatch.context() as patched:
        patched.setenv("LOWTIDE_CACHE", str(tmp_path / "file"))
        assert ClassArchive("ivy", [jar]).options(lists=True) == []
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert ClassArchive("ivy", [jar]).options(lists=True) == []

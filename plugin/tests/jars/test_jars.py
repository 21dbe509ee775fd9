import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.errors import InterpreterMismatch, JarDamaged, JarMissing, JavaMissing
from lowtide.jars import third_party as jars

IVY = """<ivy-module version="2.0">
  <info organisation="lowtide" module="jars"/>
  <configurations><conf name="connector"/><conf name="broker"/></configurations>
  <dependencies>
    <dependency org="org.one" name="one" rev="1.0" transitive="false" conf="connector->default"/>
    <dependency org="org.two" name="two" rev="2.0" transitive="false" conf="broker->default"/>
  </dependencies>
</ivy-module>
"""
SETTINGS = """<ivysettings>
  <settings defaultResolver="folder"/>
  <resolvers>
    <filesystem name="folder"><artifact pattern="{folder}/[module]-[revision].[ext]"/></filesystem>
  </resolvers>
</ivysettings>
"""
ONE, TWO = b"first jar", b"second jar"


def lock_of(one: bytes, two: bytes) -> str:
    return "".join(
        f"{hashlib.sha256(content).hexdigest()} {len(content)} {path}\n"
        for content, path in ((two, "broker/two-2.0.jar"), (one, "connector/one-1.0.jar"))
    )


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry in a folder, with two jars in it, that real Ivy reads; and an empty cache."""
    folder = tmp_path / "registry"
    folder.mkdir()
    (folder / "one-1.0.jar").write_bytes(ONE)
    (folder / "two-2.0.jar").write_bytes(TWO)
    (tmp_path / "settings.xml").write_text(SETTINGS.format(folder=folder))
    (tmp_path / "ivy.xml").write_text(IVY)
    (tmp_path / "jars.lock").write_text("# a comment\n" + lock_of(ONE, TWO))
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOWTIDE_IVY_SETTINGS", str(tmp_path / "settings.xml"))
    monkeypatch.setattr(jars, "_IVY_FILE", tmp_path / "ivy.xml")
    monkeypatch.setattr(jars, "_LOCK_FILE", tmp_path / "jars.lock")
    return folder


def left_behind() -> list[str]:
    return sorted(path.name for path in jars.jars_folder().parent.iterdir())


@pytest.mark.slow
def test_jars_are_fetched_once(registry: Path) -> None:
    assert [path.read_bytes() for path in jars.connector_jars()] == [ONE]
    shutil.rmtree(registry)
    assert [path.read_bytes() for path in jars.broker_jars()] == [TWO]
    assert left_behind() == [jars.jars_folder().name]


@pytest.mark.slow
def test_a_jar_that_is_not_the_expected_one_is_not_kept(registry: Path) -> None:
    (registry / "two-2.0.jar").write_bytes(b"another jar")
    with pytest.raises(JarDamaged, match=r"broker/two-2\.0\.jar has SHA-256 \w{64}, expected \w{64}"):
        jars.broker_jars()
    assert left_behind() == []
    # Nor does Ivy's own cache hold on to it.
    (registry / "two-2.0.jar").write_bytes(TWO)
    assert [path.read_bytes() for path in jars.broker_jars()] == [TWO]


@pytest.mark.slow
def test_a_jar_that_the_registry_lacks_is_named(registry: Path) -> None:
    (registry / "one-1.0.jar").unlink()
    with pytest.raises(JarMissing, match=r"(?s)org\.one#one;1\.0.*LOWTIDE_IVY_SETTINGS") as caught:
        jars.connector_jars()
    assert not isinstance(caught.value, JarDamaged)
    assert left_behind() == []


@pytest.mark.slow
def test_without_a_network_the_way_out_is_reported(registry: Path, tmp_path: Path) -> None:
    closed = '<ibiblio name="folder" m2compatible="true" root="http://127.0.0.1:9/"/>'
    settings = tmp_path / "settings.xml"
    before, after = settings.read_text().split("<filesystem")
    settings.write_text(before + closed + after.split("</filesystem>")[1])
    with pytest.raises(JarMissing, match="connect this machine to a Maven registry"):
        jars.connector_jars()


@pytest.mark.slow
def test_damage_after_the_fetch_is_seen(registry: Path) -> None:
    (jar,) = jars.connector_jars()
    jar.write_bytes(ONE[:-1])
    with pytest.raises(JarDamaged, match="another size than expected"):
        jars.connector_jars()
    jar.write_bytes(ONE[::-1])
    (jar.parent / "stray-1.jar").touch()
    with pytest.raises(JarDamaged, match=r"stray-1\.jar is not in jars\.lock; connector/one-1\.0\.jar has SHA-256"):
        jars.verify(jars.jars_folder())
    jar.unlink()
    with pytest.raises(JarDamaged, match="is missing"):
        jars.connector_jars()


def test_no_java_is_reported(registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-jdk"))
    with pytest.raises(JavaMissing, match="fetching them needs Java"):
        jars.connector_jars()


def test_a_cache_that_cannot_be_written_is_reported(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", "/proc/lowtide")
    with pytest.raises(JarMissing, match="LOWTIDE_CACHE"):
        jars.connector_jars()


@pytest.mark.slow
def test_two_processes_at_once_fetch_one_set(registry: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        "from lowtide.jars import third_party as jars\n"
        "jars._IVY_FILE, jars._LOCK_FILE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])\n"
        "print(*jars.connector_jars())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "ivy.xml"), str(tmp_path / "jars.lock")]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0] == f"{jars.jars_folder() / 'connector/one-1.0.jar'}\n"
    assert sum("fetching" in stderr for _, stderr in answers) == 1
    assert left_behind() == [jars.jars_folder().name]


def test_pyspark_is_found_without_importing_it() -> None:
    code = (
        "import sys; from lowtide.jars.third_party import pyspark_folder as f; "
        "print(f()); print('pyspark' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder, imported = answer.stdout.splitlines()
    assert (Path(folder) / "jars").is_dir()
    assert imported == "False"


def test_an_interpreter_without_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InterpreterMismatch, match="has no pyspark"):
        jars.pyspark_folder()


def test_the_checked_in_list_names_what_is_needed() -> None:
    paths = [jar.path for jar in jars._locked_jars()]
    assert len(paths) == len(set(paths))
    for wanted in ("connector/spark-sql-kafka-0-10_2.13", "connector/kafka-clients", "broker/kafka_2.13"):
        assert any(path.startswith(wanted) for path in paths)

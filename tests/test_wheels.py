"""The four wheels alone: installed into a fresh environment, the tutorial's first flow run from there.

Third-party packages come from uv's cache, or from the registry that uv is set up for; nothing else of the clone is used
but its pinned uv, the Python below its environment, and the cache of third-party jars.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.waiting import HANGS_S

from lowtide.cache import cache_folder
from lowtide.embedded.ports import free_port
from lowtide_snapshots.page.files import FOLDER

ROOT = Path(__file__).parents[1]
NAMES = ("lowtide", "lowtide_airflow", "lowtide_snapshots", "lowtide_tracker")
WORDS = ("to", "be", "or", "not", "to", "be")
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""These JVMs live for seconds."""
OF_A_CLONE = ("PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV")


def ran(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """The output of a command that has ended."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Installed:
    """An environment that has a wheel, and how programs are started in it, far from the clone."""

    folder: Path
    uv: str

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def variables(self) -> dict[str, str]:
        ours = Path(sys.executable).parent
        path = [each for each in os.environ["PATH"].split(":") if Path(each) not in (ours, ROOT / ".venv/bin")]
        known = {key: value for key, value in os.environ.items() if key not in OF_A_CLONE}
        known |= {"PATH": ":".join([str(self.folder / "bin"), *path]), "LOWTIDE_CACHE": str(cache_folder())}
        return known | {"JAVA_TOOL_OPTIONS": QUICK_JVM}

    def pip(self, *arguments: str | Path) -> str:
        command = [self.uv, "pip", "install", "--python", self.python, *arguments]
        variables = uv_variables()
        # Where the cache has all, the registry is not asked whether pyspark has changed, which would build it again.
        done = subprocess.run([*command, "--offline"], check=False, capture_output=True, text=True, env=variables)
        if done.returncode:
            done = ran(*command, env=variables)
        return done.stdout + done.stderr


def uv_variables() -> dict[str, str]:
    known = {key: value for key, value in os.environ.items() if key not in OF_A_CLONE}
    return known | {"UV_CACHE_DIR": str(cache_folder() / "uv-cache"), "UV_PYTHON_DOWNLOADS": "never"}


@pytest.fixture(name="uv", scope="module")
def _uv() -> str:
    return ran(sys.executable, ROOT / "tools/environment.py", "uv").stdout.strip()


@pytest.fixture(name="built", scope="module")
def _built(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `make wheels` has built everything."""
    folder = tmp_path_factory.mktemp("dist")
    ran(ROOT / "tools/wheels", folder, env=os.environ | {"LOWTIDE_PYTHON": sys.executable, "LOWTIDE_UV": uv})
    return folder


@pytest.fixture(name="installed", scope="module")
def _installed(uv: str, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """`lowtide[s3]` in an environment of its own."""
    installed = Installed(tmp_path_factory.mktemp("installed") / "environment", uv)
    ran(uv, "venv", "--python", sys._base_executable, installed.folder, env=uv_variables())  # type: ignore[attr-defined]
    installed.pip("--find-links", built, "--constraint", built / "constraints.txt", "lowtide[s3]")
    return installed


@pytest.mark.slow
def test_each_wheel_is_built_from_an_sdist_and_has_what_no_clone_can_give(built: Path) -> None:
    assert len(list(built.glob("*.tar.gz"))) == len(NAMES)
    held = {name: set(zipfile.ZipFile(next(built.glob(f"{name}-[0-9]*.whl"))).namelist()) for name in NAMES}
    assert all(f"{name}/py.typed" in held[name] for name in NAMES)
    conf = {f"lowtide/templates/{path.name}" for path in (ROOT / "conf").iterdir()}
    assert conf | {"lowtide/jars/lowtide-shim.jar", "lowtide/jars/jars.lock"} <= held["lowtide"]
    page = {f"lowtide_snapshots/page/static/{path.name}" for path in FOLDER.iterdir()}
    assert "lowtide_snapshots/page/static/page.html" in page
    assert page <= held["lowtide_snapshots"]
    dags = {f"lowtide_airflow/dag_files/{path.name}" for path in (ROOT / "dags").glob("lowtide_*.py")}
    assert len(dags) == 8
    assert dags | {"lowtide_airflow/dag_files/airflow.toml"} <= held["lowtide_airflow"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["is missing", "is older than its sources"])
def test_no_wheel_is_built_without_the_jar_that_belongs_to_it(built: Path, tmp_path: Path, fault: str) -> None:
    with tarfile.open(next(built.glob("lowtide-*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    if fault == "is missing":
        (folder / "lowtide/jars/lowtide-shim.jar").unlink()
    else:
        next((folder / "jvm/src").rglob("*.java")).write_text("// another one\n")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(build, check=False, cwd=folder, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"error: the jar of the Java shim {fault}" in done.stderr
    assert "make wheels" in done.stderr


@pytest.mark.slow
def test_what_is_installed_is_what_was_built(installed: Installed, built: Path) -> None:
    """uv's cache may have wheels of the same version from another clone."""
    (packages,) = installed.folder.glob("lib/python*/site-packages")
    for name in ("lowtide", "lowtide_snapshots", "lowtide_tracker"):
        wheel = zipfile.ZipFile(next(built.glob(f"{name}-[0-9]*.whl")))
        for entry in wheel.namelist():
            if not entry.endswith("/RECORD"):  # To which the installer adds its own.
                assert (packages / entry).read_bytes() == wheel.read(entry), entry


@pytest.mark.slow
def test_nothing_comes_from_the_clone(installed: Installed, tmp_path: Path) -> None:
    program = "import lowtide, lowtide_snapshots.stores.s3, lowtide_tracker, sys\n"
    program += "print(*(sys.modules[name].__file__ for name in ('lowtide', 'lowtide_snapshots', 'lowtide_tracker')))"
    said = ran(installed.python, "-c", program, cwd=tmp_path, env=installed.variables).stdout.split()
    assert len(said) == 3
    assert all(Path(each).is_relative_to(installed.folder) for each in said), said
    shown = ran("lowtide", "conf", "cluster", cwd=tmp_path, env=installed.variables).stdout
    assert shown == (ROOT / "conf/cluster.toml").read_text()


@pytest.mark.slow
def test_the_extra_for_airflow_resolves_and_its_dag_files_compile(
    installed: Installed, built: Path, tmp_path: Path
) -> None:
    """Airflow itself takes a gigabyte: here it is resolved; `make test-airflow` runs the DAG files under it."""
    places = ["--find-links", str(built), "--constraint", str(built / "constraints.txt")]
    would = installed.pip("--dry-run", *places, "lowtide[airflow,s3]")
    assert "+ apache-airflow==" in would
    assert "+ lowtide-airflow==" in would
    assert "- pyspark" not in would
    installed.pip("--no-deps", *places, "lowtide-airflow")
    said = ran("lowtide", "airflow", "install-dags", "dags", cwd=tmp_path, env=installed.variables).stdout
    ran(installed.python, "-m", "lowtide_airflow", "jobs-file", "conf/airflow.toml", cwd=tmp_path)
    written = sorted((tmp_path / "dags").iterdir())
    assert [path.name for path in written] == sorted(path.name for path in (ROOT / "dags").glob("lowtide_*.py"))
    assert str(tmp_path / "conf/airflow.toml") in said
    for path in written:
        compile(path.read_text(), path.name, "exec")


@dataclass
class Served:
    """A folder served on loopback, and a pip that takes its index for the only one."""

    python: Path
    folder: Path
    asked: list[str] = field(default_factory=list)

    def pip(self, target: Path) -> subprocess.CompletedProcess[str]:
        """Install `lowtide` alone into a target."""
        said = self.asked.append

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                said(self.path)

        with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(self.folder))) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            index = f"http://127.0.0.1:{server.server_port}/simple/"
            known = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
            command: list[str | Path] = [self.python, "-m", "pip", "--isolated", "install", "--no-cache-dir"]
            command += ["--no-deps", "--disable-pip-version-check", "--index-url", index, "--target", target, "lowtide"]
            done = subprocess.run(command, check=False, capture_output=True, text=True, env=known, timeout=300)
            server.shutdown()
        return done


@pytest.fixture(name="served")
def _served(built: Path, tmp_path: Path) -> Served:
    ran(sys._base_executable, "-m", "venv", tmp_path / "with-pip")  # type: ignore[attr-defined]
    return Served(tmp_path / "with-pip/bin/python", Path(shutil.copytree(built, tmp_path / "served")))


@pytest.mark.slow
def test_pip_installs_from_the_index_and_refuses_a_wheel_that_was_changed(served: Served, tmp_path: Path) -> None:
    done = served.pip(tmp_path / "target")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target/lowtide/py.typed").exists()
    (wheel,) = served.folder.glob("lowtide-[0-9]*.whl")
    assert [path.partition("#")[0] for path in served.asked] == [
        "/simple/lowtide/",
        f"/{wheel.name}.metadata",  # Which is enough to resolve.
        f"/{wheel.name}",
    ]
    wheel.write_bytes(wheel.read_bytes() + b"changed")
    done = served.pip(tmp_path / "other")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_the_index_tells_of_every_file_and_its_json_says_the_same_as_its_pages(built: Path) -> None:
    projects = [project["name"] for project in json.loads((built / "simple/index.json").read_text())["projects"]]
    assert projects == [name.replace("_", "-") for name in NAMES]
    reported = []
    for project in projects:
        folder = built / "simple" / project
        page = (folder / "index.html").read_text()
        for file in json.loads((folder / "index.json").read_text())["files"]:
            path = (folder / file["url"]).resolve()
            reported.append(path.name)
            hashed = hashlib.sha256(path.read_bytes()).hexdigest()
            assert file["hashes"] == {"sha256": hashed}
            assert f'href="{file["url"]}#sha256={hashed}"' in page
            if path.suffix == ".whl":
                metadata = hashlib.sha256(path.with_name(f"{path.name}.metadata").read_bytes()).hexdigest()
                assert file["core-metadata"] == {"sha256": metadata}
                assert f'data-core-metadata="sha256={metadata}"' in page
    assert sorted(reported) == sorted(path.name for path in [*built.glob("*.whl"), *built.glob("*.tar.gz")])


@dataclass(frozen=True)
class Place:
    """The folder that `lowtide init` has written, on ports that are free."""

    folder: Path
    installed: Installed

    def lowtide(self, *arguments: str, given: str = "") -> str:
        command = ["lowtide", *arguments, "--conf", "lowtide.toml"]
        return ran(*command, cwd=self.folder, env=self.installed.variables, input=given).stdout

    def pass_through(self, lives: int) -> None:
        """Write the words once more, and see that every count of all lives is there, once and in order."""
        self.lowtide("topic", "write", "words", given="".join(f'{{"word": "{word}"}}\n' for word in WORDS))
        delivered: list[str] = []

        def all_there() -> bool:
            delivered[:] = self.lowtide("topic", "read", "counts").splitlines()
            return len(delivered) >= lives * len(WORDS)

        until(all_there)
        seen = defaultdict(list)
        for line in delivered:
            count = json.loads(line)
            seen[count["word"]].append(count["seen"])
        assert dict(seen) == {word: list(range(1, lives * WORDS.count(word) + 1)) for word in WORDS}


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS_S
    while not true():
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.5)


@pytest.fixture(name="place")
def _place(installed: Installed, tmp_path: Path) -> Iterator[Place]:
    ran("lowtide", "init", "words", cwd=tmp_path, env=installed.variables)
    place = Place(tmp_path / "words", installed)
    conf, kafka = (place.folder / "lowtide.toml").read_text(), free_port()
    conf = conf.replace("9092", str(kafka)).replace("2181", str(free_port([kafka])))
    conf = conf.replace("[job]\n", f"[job]\nstart_limit_s = {HANGS_S}\n") + f"[worker]\nstart_limit_s = {HANGS_S}\n"
    (place.folder / "lowtide.toml").write_text(conf)
    place.lowtide("up")
    try:
        yield place
    finally:
        place.lowtide("down")


@pytest.mark.spark
@pytest.mark.nightly
def test_the_tutorials_first_flow_runs_from_wheels_by_run_and_by_spark_submit(place: Place) -> None:
    assert 'flow "counts" is sound' in place.lowtide("check", "flow.py", "--explain")
    place.lowtide("topic", "create", "flow.py")
    place.lowtide("run", "flow.py", "--detach")
    place.pass_through(lives=1)
    place.lowtide("stop", "counts")

    submit = shutil.which("spark-submit", path=place.installed.variables["PATH"])
    assert submit == str(place.installed.folder / "bin/spark-submit")
    command = "exec spark-submit $(lowtide submit-args --conf lowtide.toml) flow.py --conf lowtide.toml"
    with (place.folder / "said").open("w") as said:
        run = subprocess.Popen(
            ["bash", "-c", command], cwd=place.folder, env=place.installed.variables, stdout=said, stderr=said
        )
    try:
        until(lambda: "ready after" in (place.folder / "said").read_text() or run.poll() is not None)
        assert run.poll() is None, (place.folder / "said").read_text()
        place.pass_through(lives=2)
        place.lowtide("stop", "counts")
        assert run.wait(HANGS_S) == 0, (place.folder / "said").read_text()
    finally:
        run.kill()
        run.wait()

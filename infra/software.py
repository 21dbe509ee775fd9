"""Software of a local cluster's hosts, gathered in one folder: Terraform's variable `software`.

Lowtide is installed from wheels into an environment of its own, as a team would do it; executors get an archive.
The folder lies in the cache, one for each state of the sources; `make infra-up` calls this.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from terraform_tools import BASE_PYTHON, ROOT, python_tool, run

from lowtide.cache import cache_folder
from lowtide.embedded.kafka import server_jars
from lowtide.embedded.zookeeper import JARS, spark_jars
from lowtide.jars.java import find_java
from lowtide.jars.third_party import broker_jars, connector_jars, jars_folder

OURS = ("lowtide", "lowtide-airflow", "lowtide-snapshots", "lowtide-tracker")
LEFT_OUT = ("pyspark/jars", "pyspark/examples", "pyspark/data", "__pycache__")
"""Left out of the archive for executors, which have their own Spark."""


def gather() -> dict[str, object]:
    """Make what is missing; return the variable `software` of infra/terraform/local."""
    made = wheels()
    sources = [*made, ROOT / "requirements.lock", Path(__file__)]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    folder = cache_folder() / "cluster" / digest.hexdigest()[:12]
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _environment(folder / "lowtide" / "environment", "lowtide[s3]")
        _archive(folder / "lowtide" / "environment")
        servers(folder)
        for jar in [*connector_jars(), *broker_jars()]:
            _copies(
                folder / "lowtide" / "cache/jars" / jars_folder().name / jar.parent.relative_to(jars_folder()), [jar]
            )
        _environment(folder / "airflow" / "environment", "lowtide-airflow")
        run(folder / "airflow/environment/bin/python", "-m", "lowtide_airflow", "install-dags", folder / "airflow/dags")
        (folder / "complete").touch()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return {
        **_servers(folder),
        "spark": str(folder / "lowtide/environment/lib" / version / "site-packages/pyspark"),
        "lowtide": str(folder / "lowtide"),
        "airflow": str(folder / "airflow"),
        "hidden": [str(ROOT), str(cache_folder())],
    }


def servers(folder: Path) -> dict[str, str]:
    """Gather what Kafka, ZooKeeper and the S3 server are run from; return their part of the variable `software`."""
    _copies(folder / "zookeeper", spark_jars(JARS))
    _copies(folder / "kafka", server_jars())
    _copies(folder / "s3", [_s3_server()])
    return _servers(folder)


def _servers(folder: Path) -> dict[str, str]:
    return {
        "java": str(find_java().executable.resolve().parents[1]),
        "kafka": str(folder / "kafka"),
        "zookeeper": str(folder / "zookeeper"),
        "s3_server": str(folder / "s3"),
    }


def wheels() -> list[Path]:
    """Build this clone's wheels; return them."""
    run(ROOT / "tools/wheels")
    return sorted((ROOT / "dist").glob("*.whl"))


def _environment(folder: Path, distribution: str) -> None:
    python_tool("venv", "--relocatable", "--python", BASE_PYTHON, folder)
    install(folder / "bin/python", distribution)


def install(python: Path, distribution: str) -> None:
    """Install one of the wheels for a Python, with what it needs and nothing newer than the lock file says."""
    # Wheels of one version differ between clones: uv must not take one from its cache.
    fresh = [word for name in OURS for word in ("--refresh-package", name)]
    constraints = ["--constraints", ROOT / "requirements.lock", "--find-links", ROOT / "dist", *fresh]
    python_tool("pip", "install", "--python", python, *constraints, distribution)


def _archive(environment: Path) -> None:
    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if any(part in entry.name for part in LEFT_OUT) else entry

    draft = environment.with_name("draft")
    with tarfile.open(draft, "w:gz", compresslevel=1) as archive:
        archive.add(environment, ".", filter=kept)
    draft.rename(environment.with_name("environment.tar.gz"))


def _copies(folder: Path, files: Iterable[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder)


def _s3_server() -> Path:
    return Path(run(ROOT / "tools/s3-server", "path").strip())

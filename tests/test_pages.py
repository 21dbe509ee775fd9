"""Pages that list what the code has, held against the code."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pyspark

import lowtide
import lowtide.testing
import lowtide_snapshots
from lowtide.cli.main import INTERRUPTED
from lowtide.flow.other_words import OF_AGGREGATES, OF_FLOWS, OF_STREAMS
from lowtide.jars.java import OLDEST_JAVA
from lowtide.testing import sinks

ROOT = Path(__file__).parents[1]
BASES = {"LowtideError", "SnapshotsError", "AtRecord", "_Loss"}
"""Errors that only their subclasses are raised of."""


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def rows(text: str) -> list[list[str]]:
    return [cells(row) for row in re.findall(r"^\|.*\|$", text, re.MULTILINE) if not set(row) <= set("|- ")]


def errors(base: type[lowtide.LowtideError] = lowtide.LowtideError) -> Iterator[type[lowtide.LowtideError]]:
    yield base
    for each in base.__subclasses__():
        yield from errors(each)


def test_each_error_stands_under_its_exit_code_and_says_what_to_do() -> None:
    for package in (lowtide, lowtide_snapshots):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    import_module("lowtide_airflow.errors")
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for each in errors():
        found[each.__module__.partition(".")[0]].add((each.exit_code, each.__name__))
    ours = found["lowtide"] | found["lowtide_snapshots"]

    text = page("errors.md")
    sections = dict(re.findall(r"^## (\d+|In Airflow).*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    written = {
        code: {name for row in rows(section)[1:] for name in re.findall(r"`(\w+)`", row[0])}
        for code, section in sections.items()
    }
    assert written.pop("In Airflow") == {name for _, name in found["lowtide_airflow"]}
    assert {(int(code), name) for code, names in written.items() for name in names} == {
        (code, name) for code, name in ours if name not in BASES
    }
    assert {int(code) for code in written} == {0, INTERRUPTED, *(code for code, _ in ours)}
    assert all(len(row) == 3 and all(row) for section in sections.values() for row in rows(section))


def test_each_word_of_another_system_is_on_its_page() -> None:
    said = set(re.findall(r"`(\w+)`", page("coming-from.md")))
    assert {*OF_STREAMS, *OF_FLOWS, *OF_AGGREGATES} <= said


def test_the_supported_versions_are_those_of_the_lock_file_and_the_jars() -> None:
    needed = {row[0]: (row[1], row[2]) for row in rows(page("supported.md"))[1:]}
    lock = (ROOT / "requirements.lock").read_text()
    projects = "".join((ROOT / folder / "pyproject.toml").read_text() for folder in ("plugin", "snapshots", "dags"))
    packages = {name: said for title, said in needed.items() for name in re.findall(r", `([\w-]+)`$", title)}
    assert len(packages) == 6
    for name, (need, tested) in packages.items():
        assert need.split()[0] in re.findall(rf'"{name}[=>]=([\d.]+)', projects), name
        assert tested.split(",")[0] in re.findall(rf"^{name}==(\S+)", lock, re.MULTILINE), name
    ivy = (ROOT / "plugin/lowtide/jars/ivy.xml").read_text()
    broker, connector = needed["Kafka's brokers"][1], needed["Spark's Kafka connector"][1]
    assert f'name="kafka_2.13" rev="{broker}"' in ivy
    assert f'name="spark-sql-kafka-0-10_2.13" rev="{connector}"' in ivy
    assert (Path(pyspark.__file__).parent / "jars" / f"zookeeper-{needed['ZooKeeper'][1]}.jar").exists()
    assert needed["Java"][0].startswith(f"{OLDEST_JAVA} or newer")


def test_the_reference_has_each_public_name_once() -> None:
    public = {f"lowtide.{name}" for name in lowtide.__all__ if name != "__version__"}
    public |= {f"lowtide.agg.{name}" for name in lowtide.agg.__all__ if name not in lowtide.__all__}
    public |= {f"lowtide.testing.{name}" for name in lowtide.testing.__all__}
    public |= {f"lowtide.testing.sinks.{name}" for name in sinks.__all__}
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "tools/site/pages/api").glob("*.md")]
    assert sorted(name for text in pages for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)) == sorted(public)

import re
import tomllib
from importlib.metadata import metadata, requires, version
from pathlib import Path

from trove_classifiers import classifiers

from lowtide.version import __version__

WORKSPACE = Path(__file__).parents[2]
RELEASED = ("lowtide-tracker", "lowtide-snapshots", "lowtide", "lowtide-airflow")


def test_all_distributions_have_the_one_version() -> None:
    for name in (*RELEASED, "lowtide-bench"):
        assert version(name) == __version__
        for requirement in requires(name) or []:
            if requirement.startswith("lowtide"):
                assert re.match(rf"lowtide(-\w+)?(\[[\w,]+\])?=={re.escape(__version__)}(;|$)", requirement)


def test_what_is_released_says_what_it_is() -> None:
    for name in RELEASED:
        said = metadata(name)
        assert said["Author"] == "The Lowtide authors"
        assert said["License-Expression"] == "Apache-2.0"
        assert all(said[key] for key in ("Summary", "Keywords", "Requires-Python", "License-File", "Description"))
        assert set(said.get_all("Classifier") or []) <= classifiers
        assert "Typing :: Typed" in (said.get_all("Classifier") or [])


def test_airflow_and_tracker_never_need_spark() -> None:
    for folder in ("tracker", "snapshots", "dags"):
        project = tomllib.loads((WORKSPACE / folder / "pyproject.toml").read_text())["project"]
        assert not any("spark" in requirement for requirement in project["dependencies"])

import re
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

from lowtide.version import __version__

WORKSPACE = Path(__file__).parents[2]


def test_all_distributions_have_the_one_version() -> None:
    for name in ("lowtide-tracker", "lowtide-snapshots", "lowtide", "lowtide-airflow"):
        assert version(name) == __version__
        for requirement in requires(name) or []:
            if requirement.startswith("lowtide-"):
                assert re.fullmatch(rf"lowtide-\w+(\[[\w,]+\])?=={re.escape(__version__)}", requirement)


def test_airflow_and_tracker_never_need_spark() -> None:
    for folder in ("tracker", "snapshots", "dags"):
        project = tomllib.loads((WORKSPACE / folder / "pyproject.toml").read_text())["project"]
        assert not any("spark" in requirement for requirement in project["dependencies"])

"""Files for Amazon MWAA: nobody but Lowtide pins them, and they are tried with packages that MWAA's images have."""

from __future__ import annotations

import re

import pytest
from mwaa_archive import IMAGES, REQUIREMENTS


def test_mwaa_adds_no_constraints_of_its_own() -> None:
    # It looks for this, also in comments, and would otherwise force those of Airflow: another pyarrow than Lowtide's.
    assert re.search(r"-c |--constraint ", REQUIREMENTS)
    assert [line for line in REQUIREMENTS.splitlines() if not line.startswith("#")] == [
        "--no-index",
        "--find-links /usr/local/airflow/plugins",
        "lowtide-airflow",
    ]


@pytest.mark.parametrize("version", ["3.0.6", "3.3.1"])
def test_an_image_names_each_of_its_packages_once(version: str) -> None:
    lines = [line for line in (IMAGES / f"{version}.txt").read_text().splitlines() if not line.startswith("#")]
    assert f"apache-airflow=={version}" in lines
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.+]+", line) for line in lines)
    assert len({line.split("==")[0] for line in lines}) == len(lines) > 200

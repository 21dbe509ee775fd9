"""The connections that the Terraform modules give to Airflow have fields that the hook knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.airflow
MODULES = Path(__file__).parents[1] / "terraform"


@pytest.mark.parametrize("module", ["local", "aws"])
def test_the_hook_knows_each_extra_field(module: str) -> None:
    from lowtide_airflow.hook import EXTRA

    text = (MODULES / module / "modules/airflow/main.tf").read_text()
    blocks = re.findall(r"extra += (?:\{|merge\(.*, \{)(.*?)\}", text, re.DOTALL)
    fields = {name for block in blocks for name in re.findall(r"(\w+) += ", block)}
    assert {"snapshots_url", "zookeeper_password"} <= fields <= set(EXTRA)

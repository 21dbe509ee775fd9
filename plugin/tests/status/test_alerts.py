"""The alert rules: every metric they ask for is one that a job has, and each has its runbook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
RUNBOOK = (ROOT / "docs" / "operations.md").read_text()
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ROOT / "conf" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_has_a_runbook_and_asks_for_metrics_that_are_there(rule: dict[str, Any]) -> None:
    assert f"\n### {rule['alert']}\n" in RUNBOOK
    assert rule["labels"]["severity"] in ("page", "ticket")
    named = set(re.findall(r"\blowtide_\w+", rule["expr"]))
    listed = set(re.findall(r"^\| `(lowtide_\w+)", RUNBOOK, re.MULTILINE))
    assert named <= listed
    assert named or 'up{job="lowtide"}' in rule["expr"]


def test_a_runbook_has_its_alert() -> None:
    section = RUNBOOK.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == [rule["alert"] for rule in RULES]
    anchors = set(re.findall(r"\]\(#(lowtide\w+)\)", RUNBOOK))
    assert anchors <= {rule["alert"].lower() for rule in RULES}

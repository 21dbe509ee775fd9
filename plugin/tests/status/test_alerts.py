"""The alert rules and the board: they ask for what a job has, each alert has its runbook, and fires when it should."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hanging import HANGS_S
from prometheus_client.parser import text_string_to_metric_families
from seen import MIN_TIME, SHAPE, moment, reader, worker

from lowtide.events import EventLog
from lowtide.status.job_view import SnapshotsView
from lowtide.status.job_watch import JobWatch
from lowtide.status.metrics import JobMetrics

ROOT = Path(__file__).parents[3]
MANUAL = (ROOT / "docs" / "operations.md").read_text()
RULES_FILE = ROOT / "conf" / "alerts.yml"
CASES_FILE = Path(__file__).with_name("alerts_test.yml")
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
CASES: list[dict[str, Any]] = yaml.safe_load(CASES_FILE.read_text())["tests"]
BOARD: dict[str, Any] = json.loads((ROOT / "conf" / "grafana.json").read_text())
SCRAPED = {"job", "instance"}
"""Labels that Prometheus gives to whatever it scrapes."""
NO_PROMTOOL = "there is no promtool here, build it with `make promtool`"
by_alert = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


@pytest.fixture(name="exposed", scope="module")
def _exposed() -> str:
    """The metrics of a job of which everything is known."""
    watch = JobWatch(SHAPE, EventLog("index", 3, io.StringIO()))
    took = {5: 100}
    workers = [
        reader("0/documents-0", 0, 40, parked=6),
        worker("1/0", repairs=2, latency=took, hops={"python": took}),
        worker("1/1", calls={"score": {"open": 1}}, callers={"score": {"oldest_s": 0.1, "seconds": took}}, turns=took),
        worker("2/0", delivered=30, dead_letters=1, transactions=7, deliveries={"kafka": took}),
    ]
    known = SnapshotsView(
        last="000003-0001", last_ms=2 * MIN_TIME, committed_s=3.0, counts={"committed": 1}, took_s=1.0, bytes=9
    )
    for second in (0.0, 3.0):
        watch.look(second, moment(workers=workers, spare={0: 5}, delivered_time=MIN_TIME, snapshots=known))
    return (
        JobMetrics(SHAPE.job, watch.view, watch.histograms, watch.call_seconds, watch.delivery_seconds)
        .exposition()[0]
        .decode()
    )


@pytest.fixture(name="series", scope="module")
def _series(exposed: str) -> dict[str, set[str]]:
    """The labels of each metric, by the names that Prometheus stores."""
    samples = (sample for family in text_string_to_metric_families(exposed) for sample in family.samples)
    return {sample.name: set(sample.labels) for sample in samples}


def anchors() -> set[str]:
    """The addresses that the manual's headings have."""
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", MANUAL, re.MULTILINE)
    }


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\blowtide_\w+", expression))


# -- alerts ------------------------------------------------------------------------------------------------------------


@by_alert
def test_an_alert_asks_for_metrics_that_a_job_has_and_has_a_runbook(
    rule: dict[str, Any], series: dict[str, set[str]]
) -> None:
    named = metrics_in(rule["expr"])
    assert named <= series.keys()
    assert named or 'up{job="lowtide"}' in rule["expr"]
    assert rule["labels"]["severity"] in ("page", "ticket")
    document, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (document, anchor) == ("docs/operations.md", rule["alert"].lower())
    assert anchor in anchors()


def test_a_runbook_has_its_alert() -> None:
    section = MANUAL.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == [rule["alert"] for rule in RULES]
    assert set(re.findall(r"\]\(#(lowtide\w+)\)", MANUAL)) <= {rule["alert"].lower() for rule in RULES}


@by_alert
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(rule: dict[str, Any]) -> None:
    expected = [
        each["exp_alerts"] for case in CASES for each in case["alert_rule_test"] if each["alertname"] == rule["alert"]
    ]
    assert any(expected)
    assert [] in expected


def test_the_cases_have_series_as_a_job_has_them(series: dict[str, set[str]]) -> None:
    for case in CASES:
        for each in case["input_series"]:
            name, labels = re.fullmatch(r"(\w+)\{(.*)\}", each["series"]).groups()  # type: ignore[union-attr]
            if name != "up":
                assert set(re.findall(r"(\w+)=", labels)) - SCRAPED == series[name], each["series"]


# -- the board ---------------------------------------------------------------------------------------------------------


def panels() -> list[dict[str, Any]]:
    return [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*found, *(each["expr"] for each in BOARD["annotations"]["list"])]


def test_the_board_s_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert [count for count in Counter(panel["id"] for panel in BOARD["panels"]).values() if count > 1] == []
    cells: Counter[tuple[int, int]] = Counter()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24
        cells.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))
    assert max(cells.values()) == 1


def test_each_panel_says_what_it_shows_and_asks_the_chosen_prometheus_for_the_chosen_jobs() -> None:
    variables = {each["name"] for each in BOARD["templating"]["list"]}
    assert variables == {"datasource", "job_name"}
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            # Who does not answer has not said its name.
            assert 'job_name=~"$job_name"' in target["expr"] or target["expr"] == 'up{job="lowtide"}'
    used = {found for text in expressions() for found in re.findall(r"\$(\w+)", text)}
    assert used <= variables | {"__rate_interval"}


def test_the_board_asks_for_metrics_and_labels_that_a_job_has(series: dict[str, set[str]]) -> None:
    for panel in panels():
        for target in panel["targets"]:
            named = metrics_in(target["expr"])
            assert named <= series.keys()
            labels = set().union(*(series[name] for name in named)) | SCRAPED
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            matched = set(re.findall(r'(\w+)=~?"', target["expr"]))
            assert shown | matched <= labels, target
    missing = {"up", "lowtide_build_info"}
    assert metrics_in(" ".join(expressions())) <= series.keys() - missing


# -- what Prometheus itself says ---------------------------------------------------------------------------------------


@pytest.fixture(name="promtool", scope="module")
def _promtool() -> Path:
    done = subprocess.run([ROOT / "tools/go-program", "path", "promtool"], capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    if not path.exists():
        pytest.skip(NO_PROMTOOL)
    return path


def reported(command: Sequence[str | Path], given: str = "") -> str:
    """promtool's output, if it finds nothing wrong."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_takes_the_rules_and_each_alert_fires_when_it_should(promtool: Path) -> None:
    assert f"{len(RULES)} rules found" in reported(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES_FILE]
    )
    reported([promtool, "test", "rules", CASES_FILE])


def test_an_alert_that_is_wrong_is_noticed(promtool: Path, tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(RULES_FILE.read_text().replace("> 60", "> 6000"))
    (tmp_path / "cases.yml").write_text(CASES_FILE.read_text().replace("../../../conf/", ""))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "cases.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "LowtideBehind" in done.stdout + done.stderr


def test_prometheus_finds_nothing_wrong_with_the_metrics(promtool: Path, exposed: str) -> None:
    assert reported([promtool, "check", "metrics"], exposed) == ""


def test_prometheus_takes_the_board_s_expressions(promtool: Path, tmp_path: Path) -> None:
    def plain() -> Iterator[dict[str, str]]:
        for number, text in enumerate(expressions()):
            yield {
                "record": f"panel:{number}",
                "expr": text.replace("$__rate_interval", "1m").replace("$job_name", ".*"),
            }

    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": list(plain())}]}))
    assert f"{len(expressions())} rules found" in reported([promtool, "check", "rules", rules])

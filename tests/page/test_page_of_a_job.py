"""The page, the history and the metrics of one real job in its second life, with a commit."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.browser import looks, shoot
from tests.shop import Load, Shop
from tests.waiting import HANGS_S

from lowtide.cli.snapshot import take
from lowtide.driver.job import Job
from lowtide.status.history import Sample

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
READ = Sample.__struct_fields__.index("records_in")


@pytest.fixture(name="job", scope="module")
def _job(spark: Spark) -> Iterator[Job]:
    """A job under load, with one commit, in its second life."""
    shop = Shop.open("page", spark.kafka, spark.settings(), letters=2)
    with Load(shop, per_s=300):
        with shop.running() as before:
            before.wait(lambda: before.status()["totals"]["records_out"] < 300)
            # A look a second: a quick life could end before one of them has seen a rate.
            before.wait(lambda: not any(sample[READ] for sample in history_of(before)["fine"]))
        with shop.running() as job:
            job.wait(lambda: job.status()["totals"]["records_out"] < 300)
            assert take(job.client(), job.plan.name, "the first", limit_s=HANGS_S).phase == "committed"
            yield job


def history_of(job: Job) -> Any:
    """The drawing of its page."""
    return json.loads(job.client()._ask("GET", "/history"))


def test_the_page_shows_the_job_as_it_is(job: Job, browser: Any) -> None:
    assert job.control is not None
    context = browser.new_context(ignore_https_errors=True)
    tab = context.new_page()
    tab.goto(f"https://{job.control.address}/#token={job.token}")
    tab.locator("#snapshots tbody tr", has_text="the last commit").wait_for()
    view = job.client().status()
    for width, theme in looks(tab):
        assert tab.locator("#verdict strong").inner_text().startswith(f"{job.plan.name} ")
        lives = [row.inner_text().split() for row in tab.locator("#lives tbody tr").all()]
        assert [(life[0], life[-1]) for life in lives] == [("2", "runs"), ("1", "stopped")]
        assert tab.locator("#fronts tbody tr").count() == len(view.fronts)
        assert tab.locator("#segments tbody tr").count() == len(view.segments)
        newest = tab.locator("#snapshots tbody tr").first.inner_text()
        assert view.snapshots.last in newest
        assert "the first" in newest
        assert "KiB" in newest
        assert tab.locator("#hops tbody tr").count() >= 5
        assert tab.locator("figure path.line").count() >= 4
        assert re.search(r"\d /s", tab.locator(".tile", has_text="Read").inner_text())
        wide, there = tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert wide <= there == width
        shoot(tab, f"job-{width}-{theme}")
    context.close()


def test_the_history_goes_on_from_one_life_to_the_next(job: Job) -> None:
    """In one Spark session: a page that is opened after a recovery shows how it came to that."""
    history = history_of(job)
    began_ms = job.client().status().started_ms
    assert history["incarnation"] == 2
    assert [mark["event"] for mark in history["marks"]].count("life_begun") == 2
    before = [sample for sample in history["fine"] if sample[0] < began_ms]
    assert len(before) >= 2
    assert any(sample[READ] for sample in before), "records were read per second"


def test_the_rules_and_the_board_ask_for_metrics_that_it_has(job: Job) -> None:
    names = metric_names(job.client().metrics())
    assert len(names) > 25
    for file in ("alerts.yml", "grafana.json"):
        used = set(re.findall(r"\blowtide_\w+", expressions(CONF / file)))
        assert len(used) > 5
        assert used <= names


def metric_names(exposition: str) -> set[str]:
    """Those that Prometheus stores; a gauge that has no value yet has a type alone."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    families = text_string_to_metric_families(exposition)
    return {family.name + suffix for family in families for suffix in suffixes.get(family.type, ("",))}


def expressions(file: Path) -> str:
    if file.suffix == ".json":
        panels = json.loads(file.read_text())["panels"]
        return "\n".join(target["expr"] for panel in panels for target in panel.get("targets", []))
    groups = yaml.safe_load(file.read_text())["groups"]
    return "\n".join(rule["expr"] for group in groups for rule in group["rules"])


def test_prometheus_finds_nothing_wrong_with_its_metrics(job: Job) -> None:
    found = subprocess.run([ROOT / "tools/go-program", "path", "promtool"], capture_output=True, text=True, check=True)
    promtool = Path(found.stdout.strip())
    if not promtool.exists():
        pytest.skip("there is no promtool here, build it with `make promtool`")
    metrics = job.client().metrics()
    done = subprocess.run([promtool, "check", "metrics"], input=metrics, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")

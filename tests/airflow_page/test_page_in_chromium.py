"""The page in a browser: inside Airflow's UI, in headless Chromium, light and dark, wide and narrow.

`LOWTIDE_SHOTS=FOLDER` keeps pictures of what is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser import shoot

if TYPE_CHECKING:
    from .conftest import Page

pytestmark = [pytest.mark.airflow, pytest.mark.zookeeper, pytest.mark.slow]
WIDE = {"width": 1440, "height": 1000}
NARROW = {"width": 420, "height": 900}


class Window:
    """A browser window of somebody who is signed in to Airflow."""

    def __init__(self, page: Page, browser: Any, theme: str, size: dict[str, int]) -> None:
        self.theme = theme
        self.complaints: list[str] = []
        self._page = page
        self._context = browser.new_context(viewport=size, color_scheme=theme, base_url=page.airflow.url)
        self._context.set_default_timeout(120_000)
        self._context.add_init_script(f"localStorage.setItem('theme', '{theme}')")
        self.tab = self._context.new_page()
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.goto("/")
        self.tab.fill("input[name=username]", "viewer")
        self.tab.fill("input[name=password]", page.password("viewer"))
        self.tab.click("button[type=submit]")
        self.tab.wait_for_url(lambda url: "/auth/" not in url)

    def open(self, job: str, **asked: str) -> Any:
        """The page of a job, within Airflow's; returns its frame when it shows the job."""
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        self.tab.goto(f"/plugin/lowtide/lowtide/?job={job}&connection=lowtide_default&{query}")
        frame = self.tab.frame_locator("iframe")
        frame.locator("#verdict strong", has_text=job).wait_for()
        return frame

    def shoot(self, name: str) -> None:
        shoot(self.tab, f"airflow-{name}")

    def close(self) -> None:
        self._context.close()


@pytest.fixture(name="window", params=["light", "dark"])
def _window(page: Page, browser: Any, request: pytest.FixtureRequest) -> Iterator[Window]:
    window = Window(page, browser, request.param, WIDE)
    yield window
    window.close()
    assert window.complaints == []


@pytest.fixture(name="narrow")
def _narrow(page: Page, browser: Any) -> Iterator[Window]:
    window = Window(page, browser, "dark", NARROW)
    yield window
    window.close()
    assert window.complaints == []


def test_the_navigation_leads_to_the_page(window: Window, page: Page) -> None:
    window.tab.goto("/plugin/lowtide")
    frame = window.tab.frame_locator("iframe")
    frame.locator(f"#jobs a:has-text('{page.jobs.dead}')").wait_for()
    # Where nobody has chosen a job, the one that needs somebody is shown.
    assert "is dead" in frame.locator("#verdict strong").inner_text()
    assert frame.locator("html").get_attribute("data-theme") == window.theme


def test_a_job_that_lives_is_drawn(window: Window, page: Page) -> None:
    frame = window.open(page.jobs.living)
    assert "runs" in frame.locator("#verdict strong").inner_text()
    frame.get_by_role("button", name="15 min", exact=True).click()
    for panel in ("Lag", "Records per second", "Latency"):
        figure = frame.locator("figure", has_text=panel).first
        assert figure.locator("path.line").count() >= 2
        assert len(figure.locator("path.line").first.get_attribute("d")) > 2000
    assert frame.locator(".mark.diamond").count() >= 2
    assert frame.locator(".mark.cross").count() >= 1
    assert frame.locator(".mark.triangle").count() == 1
    assert frame.locator(".tile").count() == 6
    assert "held by front 3 (documents-1)" in frame.locator(".tile").first.inner_text()
    window.shoot(f"living-{window.theme}")
    frame.locator(".charts").focus()
    for _ in range(9):
        window.tab.keyboard.press("ArrowLeft")
    readout = frame.locator(".readout").inner_text()
    assert "min time held by front 3 (documents-1)" in readout
    assert "life 3" in readout
    window.tab.keyboard.press("Escape")
    assert "arrow keys" in frame.locator(".readout").inner_text()
    frame.get_by_role("button", name="6 h", exact=True).click()
    assert frame.locator("rect.bar.bad").count() == 1, "a snapshot that failed"
    assert frame.locator(".mark.cross.bad").count() == 3, "that snapshot, and two lives that died"
    assert frame.locator("#lives tbody tr").count() == 3
    window.shoot(f"living-6h-{window.theme}")


def test_a_dead_job_says_so_first_and_what_to_do(window: Window, page: Page) -> None:
    frame = window.open(page.jobs.dead)
    # The job comes first, what the store has of it later.
    frame.locator("#snapshots", has_text="damaged").wait_for()
    frame.locator("#verdict li").nth(3).wait_for()
    verdict = frame.locator("#verdict").inner_text()
    assert f"{page.jobs.dead} is dead" in verdict
    assert re.search(r"for \d+ min, since (\d+ \w+ )?\d\d:\d\d:\d\d UTC, life 1", verdict)
    assert "raised ValueError: no such word" in verdict
    assert f"the task ask_a_person of the DAG lowtide_recover__{page.jobs.dead}" in verdict
    assert frame.locator("#verdict li").count() == 4
    assert frame.locator("path.line").count() == 0
    window.shoot(f"dead-{window.theme}")


def test_a_link_brings_out_its_snapshot(window: Window, page: Page) -> None:
    frame = window.open(page.jobs.living, snapshot="000003-0002")
    row = frame.locator("tr.chosen")
    row.wait_for()
    assert "before the update" in row.inner_text()
    assert row.evaluate(
        "row => { const box = row.getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight; }"
    )


def test_jobs_are_changed_by_a_click_and_the_address_follows(window: Window, page: Page) -> None:
    frame = window.open(page.jobs.living)
    frame.locator(f"#jobs a:has-text('{page.jobs.gone}')").click()
    frame.locator("#verdict strong", has_text=page.jobs.gone).wait_for()
    assert "gone without reporting an end" in frame.locator("#verdict").inner_text()
    window.tab.wait_for_url(lambda url: page.jobs.gone in url)


def test_a_job_that_nobody_chose_stays_and_nothing_of_it_is_shown_of_the_next(narrow: Window, page: Page) -> None:
    living, dead, tab = page.jobs.living, page.jobs.dead, narrow.tab
    known = page.get("api/jobs").json() | {"kept_ms": 0}
    listed = [living]

    def listing(route: Any) -> None:
        jobs = [each for name in listed for each in known["jobs"] if each["job"] == name]
        route.fulfill(json={**known, "jobs": jobs})

    def asked(job: str) -> Any:
        return tab.expect_request(lambda request: f"api/job?job={job}&" in request.url)

    tab.route("**/lowtide/api/jobs", listing)
    tab.goto("/plugin/lowtide/lowtide/")
    frame = tab.frame_locator("iframe")
    frame.get_by_role("button", name="15 min", exact=True).click()
    frame.locator("path.line").first.wait_for()

    listed[:] = [dead, living]
    frame.locator("#jobs a", has_text=dead).wait_for()
    with asked(living):
        pass
    assert living in frame.locator("#jobs [aria-current]").inner_text()
    assert living in frame.locator("#verdict strong").inner_text()

    listed[:] = ["elsewhere", dead]
    with asked(dead) as request:
        frame.locator("#verdict strong", has_text=dead).wait_for()
    assert request.value.url.endswith("since_ms=0")
    assert frame.locator("path.line").count() == 0
    assert frame.locator("#ranges [aria-pressed=true]").inner_text() == "1 h"

    listed[:] = ["elsewhere"]
    frame.locator("#verdict strong", has_text="elsewhere").wait_for()
    assert frame.locator(".tile").count() == 0
    assert not frame.locator("#lives").is_visible()

    listed[:] = [dead]
    frame.locator("#verdict strong", has_text=dead).wait_for()
    listed.clear()
    frame.locator("#verdict strong", has_text="No jobs yet").wait_for()
    assert frame.locator(".tile").count() == 0
    assert not frame.locator("#lives").is_visible()
    known["troubles"] = [{"what": "the jobs file cannot be read", "where": "line 3", "way_out": "correct it"}]
    frame.locator("#trouble", has_text="The jobs file cannot be read").wait_for()


@pytest.mark.parametrize("state", ["living", "dead", "mute"])
def test_nothing_is_wider_than_a_narrow_window(narrow: Window, page: Page, state: str) -> None:
    frame = narrow.open(getattr(page.jobs, state))
    frame.locator("#snapshots h2, #lives h2").first.wait_for()
    wide, there = frame.locator("html").evaluate("html => [html.scrollWidth, html.clientWidth]")
    assert wide <= there
    narrow.shoot(f"{state}-narrow")


def test_a_place_that_does_not_answer_claims_nothing(narrow: Window) -> None:
    narrow.tab.goto("/plugin/lowtide/lowtide/?job=elsewhere&connection=lowtide_away")
    frame = narrow.tab.frame_locator("iframe")
    frame.locator("#verdict strong", has_text="cannot be read now").wait_for()
    assert "ZooKeeper did not answer" in frame.locator("#trouble").inner_text()
    assert "lowtide_missing" in frame.locator("#elsewhere").inner_text()
    assert frame.locator(".tile").count() == 0
    assert not frame.locator("#lives").is_visible()


def test_when_the_api_server_is_gone_what_was_known_stays_and_is_said_to_be_old(narrow: Window, page: Page) -> None:
    frame = narrow.open(page.jobs.dead)
    frame.locator(".tile").first.wait_for()
    narrow.tab.route("**/lowtide/api/**", lambda route: route.abort())
    frame.locator("#trouble", has_text="does not answer").wait_for()
    assert frame.locator("body.stale").count() == 1
    assert "The page shows the status of" in frame.locator("#trouble").inner_text()
    assert frame.locator(".tile").count() == 4
    narrow.tab.unroute("**/lowtide/api/**")
    frame.locator("body:not(.stale)").wait_for()

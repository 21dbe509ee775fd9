"""The page that a job serves, in headless Chromium: every state, light and dark, at three widths.

`LOWTIDE_SHOTS=FOLDER` keeps pictures of what is seen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from controlled import TOKEN, ControlledJob
from seen import SHAPE
from tests.browser import HEIGHT, WIDTHS, looks, shoot
from tests.waiting import HANGS_S

from lowtide_snapshots.page.files import FOLDER
from tests.page import scenes

pytestmark = pytest.mark.slow
REFUSED = "the server responded with a status of 401"
ROOT = Path(__file__).parents[2]


class Window:
    """A browser window that nobody has used before.

    Attributes:
        requests: What it has asked for, method and address.
        complaints: Errors of the page's scripts, and what the browser would not do for it.
    """

    def __init__(self, browser: Any, width: int = 1440, theme: str = "light") -> None:
        size = {"width": width, "height": HEIGHT}
        # The certificate is the life's own: a user accepts it once.
        self._context = browser.new_context(viewport=size, color_scheme=theme, ignore_https_errors=True)
        self._context.set_default_timeout(HANGS_S * 1000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.tab = self.another()

    def another(self) -> Any:
        """Open one more tab."""
        tab = self._context.new_page()
        tab.on("request", lambda request: self.requests.append(f"{request.method} {request.url}"))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("console", lambda line: self.complaints.append(line.text) if line.type in ("error", "warning") else None)
        return tab

    def open(self, job: ControlledJob) -> Any:
        """See a job, as `lowtide status --open` shows it."""
        self.tab.goto(f"https://{job.address}/#token={TOKEN}")
        self.tab.locator("#verdict strong").wait_for()
        return self.tab

    def close(self) -> None:
        self._context.close()


@pytest.fixture(name="window")
def _window(browser: Any) -> Iterator[Window]:
    window = Window(browser)
    yield window
    window.close()
    assert window.complaints == []


Served = Callable[[str], ControlledJob]
FRESH_S = 60.0
"""A scene tells of the quarter of an hour before it was made: an older one is made once more."""


@pytest.fixture(name="served", scope="module")
def _served() -> Iterator[Served]:
    """Serves a scene, by its name, until all tests are over."""
    known: dict[str, tuple[float, ControlledJob]] = {}
    with ExitStack() as stack:

        def serve(name: str) -> ControlledJob:
            now = time.monotonic()
            if name not in known or now - known[name][0] > FRESH_S:
                scene: AbstractContextManager[ControlledJob] = getattr(scenes, name)()
                known[name] = now, stack.enter_context(scene)
            return known[name][1]

        yield serve


def text(tab: Any, place: str) -> str:
    return str(tab.locator(place).first.inner_text())


# -- who sees it -------------------------------------------------------------------------------------------------------


def test_the_token_is_asked_for_once_and_kept_for_the_tab_alone(browser: Any, served: Served) -> None:
    window = Window(browser)
    tab = window.tab
    tab.goto(f"https://{served('healthy').address}/")
    tab.get_by_label("Token").wait_for()
    assert tab.evaluate("document.activeElement.id") == "token"
    assert tab.locator("#time").is_hidden()
    shoot(tab, "page-login")
    tab.keyboard.type("not the token")
    tab.keyboard.press("Enter")
    tab.get_by_text("The job does not take this token.").wait_for()
    tab.keyboard.type(TOKEN)
    tab.keyboard.press("Enter")
    tab.locator("#verdict strong", has_text="orders runs").wait_for()
    tab.reload()
    tab.locator("#verdict strong", has_text="orders runs").wait_for()
    other = window.another()
    other.goto(tab.url)
    other.get_by_label("Token").wait_for()
    window.close()
    assert [each for each in window.complaints if REFUSED not in each] == []
    assert not any(TOKEN in request for request in window.requests)


def test_a_token_in_the_address_is_taken_out_of_it(window: Window, served: Served) -> None:
    job = served("healthy")
    tab = window.open(job)
    assert tab.url == f"https://{job.address}/"
    assert not any(TOKEN in request for request in window.requests)


def test_it_only_reads_and_asks_nobody_else(window: Window, served: Served) -> None:
    job = served("healthy")
    tab = window.open(job)
    with tab.expect_request(lambda request: "since_ms=0" not in request.url and "api/job?" in request.url):
        pass
    assert len(window.requests) > 10
    assert all(request.startswith(f"GET https://{job.address}/") for request in window.requests)
    assert job.stops == []


def hidden_columns(tab: Any) -> list[str]:
    """The sections whose tables have columns that are seen only by scrolling."""
    found: list[str] = tab.evaluate(
        """[...document.querySelectorAll(".wide:has(table)")].filter((each) => each.scrollWidth > each.clientWidth)
           .map((each) => each.closest("section").id)"""
    )
    return found


# -- how it looks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", ["healthy", "ill"])
def test_all_fits_at_every_width_light_and_dark(window: Window, served: Served, scene: str) -> None:
    tab = window.open(served(scene))
    for width, theme in looks(tab):
        wide, there = tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert wide <= there == width
        cut = tab.evaluate(
            """[...document.querySelectorAll("main :is(strong, dt, dd, h2, p):not(.unseen)")]
               .filter((each) => each.scrollWidth > each.clientWidth + 1)
               .filter((each) => getComputedStyle(each).display !== "inline")
               .map((each) => each.textContent)"""
        )
        assert cut == []
        dark = tab.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part < 100)"
        )
        assert dark == (theme == "dark")
        assert tab.locator("figure path.line").count() >= 6
        if width < WIDTHS[1]:
            assert hidden_columns(tab) == [], "a row is a list there"
        shoot(tab, f"page-{scene}-{width}-{theme}")
        shoot(tab, f"page-{scene}-{width}-{theme}-whole", whole=True)


def test_one_screen_says_whether_the_job_is_well(window: Window, served: Served) -> None:
    """Sentence, figures, charts and events are above the fold of a usual screen."""
    tab = window.open(served("healthy"))
    for each in ("#verdict", "#tiles", "#timeline figure:last-of-type"):
        box = tab.locator(each).bounding_box()
        assert box["y"] + box["height"] <= HEIGHT


def test_a_page_that_is_opened_late_shows_what_was_before(window: Window, served: Served) -> None:
    tab = window.open(served("healthy"))
    tab.locator("figure path.line").first.wait_for()
    for figure in ("Lag", "Records per second", "Latency"):
        line = tab.locator("figure", has_text=figure).locator("path.line").first
        assert line.get_attribute("d").count("L") > 800, "a point for each second of a quarter of an hour"
    assert tab.locator(".mark.triangle").count() == 1, "the tracker was restarted"
    assert tab.locator("rect.bar.two").count() == 3, "somebody held min time by a second"


def test_fronts_segments_hops_snapshots_and_lives_are_listed(window: Window, served: Served) -> None:
    tab = window.open(served("healthy"))
    assert "held by front 3 (documents-1)" in text(tab, ".tile")
    assert re.search(r"documents-1\s+[\d.]+ m?s\s+holds min time", text(tab, "#fronts tr.holds"))
    assert "last, changes" in text(tab, "#segments tr.holds")
    assert [row.inner_text().split()[0] for row in tab.locator("#hops tbody tr").all()] == [
        "pack", "python", "exchange", "python", "wait", "commit"
    ]  # fmt: skip
    flow = text(tab, "#flow")
    assert re.search(r"level 0: [\d,]+ /s in", flow)
    assert "48,213 keys, 9.0 MiB" in flow
    assert re.search(r"archive\s*write\s*[\d,]+ records", flow)
    assert tab.locator("#flow .way").count() == 6
    assert tab.locator("#flow .way.exchange").count() == 2
    assert tab.locator(".tile").count() == 6, "nothing was set aside"
    to_kafka, to_files, dry = (row.inner_text() for row in tab.locator("#sinks tbody tr").all())
    assert re.search(r"index\s+[\d,]+\s+[\d.]+ MiB\s+[\d:.]+\s+[\d.]+ m?s$", to_kafka.strip())
    carried = r"[\d:.]+\s+2 s\s+12,345\s+3(\.0)? MiB\s+1"
    assert re.search(rf"archive\s+[\d,]+\s+[\d.]+ MiB\s+[\d:.]+\s+20 min( 0 s)?\s+{carried}", to_files)
    assert re.search(r"refunds\s+0\s+0 B\s+none yet", dry)
    newest = text(tab, "#snapshots tbody tr")
    assert "000003-0003" in newest
    assert "the last commit" in newest
    assert "3.1 MiB" in newest
    lives = [row.inner_text() for row in tab.locator("#lives tbody tr").all()]
    assert len(lives) == 3
    assert "its program, after the previous life" in lives[0]
    assert "worker 1/0 died: killed by SIGKILL" in lives[1]


def test_the_end_of_the_log_is_shown_as_long_as_somebody_wants_it(
    window: Window, served: Served, tmp_path: Path
) -> None:
    job = served("healthy")
    tab = window.open(job)
    button = tab.locator("#log button")
    button.click()
    tab.locator("#log", has_text="The job writes no file").wait_for()
    job.log_file = tmp_path / "job.log"
    job.log_file.write_text("".join(f"line {number} <b>\n" for number in range(1_000)))
    lines = tab.locator("#log pre")
    lines.wait_for()
    assert lines.inner_text().splitlines() == [f"line {number} <b>" for number in range(800, 1_000)]
    assert f"{job.log_file} on host-1" in text(tab, "#log")
    with job.log_file.open("a") as log:
        log.write("one more\n")
    tab.locator("#log pre", has_text="one more").wait_for()
    button.click()
    asked = [each for each in window.requests if "api/log" in each]
    tab.wait_for_timeout(2_500)
    assert [each for each in window.requests if "api/log" in each] == asked
    job.log_file = None


def test_each_kind_of_connection_says_what_protects_it(window: Window, served: Served) -> None:
    tab = window.open(served("healthy"))
    rows = [row.inner_text().split("\t") for row in tab.locator("#connections tbody tr").all()]
    assert [[cell.strip() for cell in row] for row in rows] == [[*each] for each in SHAPE.connections.items()]
    assert tab.locator("#connections .warn").inner_text() == "nodes of one user, in the clear"


def test_the_programs_that_wait_to_take_over_are_listed(window: Window, served: Served) -> None:
    tab = window.open(served("healthy"))
    rows = [[cell.strip() for cell in row.inner_text().split("\t")] for row in tab.locator("#standbys tbody tr").all()]
    assert rows == [[each.holder, each.since, "ready" if each.ready else "starting"] for each in scenes.STANDBYS]
    tab = window.open(served("ill"))
    assert tab.locator("#standbys tbody tr").count() == 0


def test_one_moment_can_be_read_with_the_keyboard_alone(window: Window, served: Served) -> None:
    tab = window.open(served("healthy"))
    for _ in range(20):
        if "charts" in (tab.evaluate("document.activeElement.className") or ""):
            break
        tab.keyboard.press("Tab")
    for _ in range(5):
        tab.keyboard.press("ArrowLeft")
    assert "min time held by front 3 (documents-1)" in text(tab, ".readout")
    tab.keyboard.press("Escape")
    assert "arrow keys" in text(tab, ".readout")


def test_everything_has_a_name_for_those_who_do_not_see_it(window: Window, served: Served) -> None:
    tab = window.open(served("ill"))
    unnamed = tab.evaluate(
        """[...document.querySelectorAll("section:not(:empty), svg[role], nav, table, [role=group], button")]
           .filter((each) => !each.ariaLabel && !each.hasAttribute("aria-labelledby") && !each.textContent.trim())
           .map((each) => each.outerHTML.slice(0, 200))"""
    )
    assert unnamed == []
    assert text(tab, "#spoken").endswith("runs, but delivers nothing")
    assert tab.locator("html").get_attribute("lang") == "en"


# -- other states ------------------------------------------------------------------------------------------------------


def test_a_job_that_stands_says_what_holds_it(window: Window, served: Served) -> None:
    tab = window.open(served("ill"))
    verdict = text(tab, "#verdict")
    assert f"{scenes.LONG} runs, but delivers nothing" in verdict
    assert "Min time stands. It is held by an open ack of segment 2" in verdict
    assert "snapshot 000003-0002 failed: the store does not answer" in verdict
    assert tab.locator(".tile.warn").count() == 4
    assert re.search(
        r"Dead letters\s+21\s+3 rows refused by tables, 188 records too late, 340 repairs", text(tab, "#tiles")
    )
    assert "index" in text(tab, "#segments tr.holds")
    to_do = [each.inner_text() for each in tab.locator("#verdict li").all()]
    assert to_do[0].startswith("A record is on its way to index.")
    assert "`" not in "".join(to_do)
    assert [each.text_content() for each in tab.locator("#flow .holds .name").all()] == ["index"]
    assert "index, scan of changes, holds min time" in tab.locator("#flow svg").get_attribute("aria-label")
    assert tab.title().startswith(f"{scenes.LONG} runs, but")


TROUBLES = {
    "slow_step": (
        'runs, but delivers nothing: step "index" is slow',
        "add_to_index (/srv/flows/orders.py:41)",
        "index",
    ),
    "dry_sink": ('runs, but sink "archive" takes nothing', "records wait for PostgreSQL at db-3", "archive"),
    "dead_letters": ('runs, but "changes" gives records to the dead letters', "raised KeyError: 'currency'", "changes"),
    "silent_partition": ("runs, but partition documents-1 is silent", "is open at offset 39998120", "documents-1"),
    "full_disk": ("runs, but the disk of the snapshots is nearly full", "has 3 MiB left of 64 GiB", ""),
    "five_troubles": ('runs, but delivers nothing: step "index" is slow (and 4 more)', "", ""),
}


@pytest.mark.parametrize("scene", TROUBLES)
def test_a_trouble_is_named_with_its_way_out_where_one_looks_first(window: Window, served: Served, scene: str) -> None:
    """Its step, sink, partition or disk is in the sentence on top, its figures and the way out are right below."""
    headline, said, marked = TROUBLES[scene]
    tab = window.open(served(scene))
    for width, theme in looks(tab):
        assert text(tab, "#verdict strong") == f"orders {headline}"
        assert said in text(tab, "#verdict .found p")
        assert "`" not in text(tab, "#verdict")
        assert tab.locator("#verdict .found li").count() >= 2
        below = tab.locator("#verdict .found li").first.bounding_box()
        assert below["y"] + below["height"] < HEIGHT, "without scrolling"
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        shoot(tab, f"page-{scene}-{width}-{theme}")
        shoot(tab, f"page-{scene}-{width}-{theme}-whole", whole=True)
    if marked:
        assert marked in " ".join(tab.locator("main .warn, main tr.holds").all_text_contents())


def test_a_service_that_does_not_answer_is_named_by_its_step(window: Window, served: Served) -> None:
    tab = window.open(served("waiting"))
    assert 'Min time stands. It is held by open calls of "score" at ' in text(tab, "#verdict")
    held = text(tab, "#calls tr.holds")
    assert re.search(r"^score\s+holds min time\s+200\s+[\d,]+ wait\s+1 min \d+ s\s+0 /s\s", held), held
    other = text(tab, "#calls tbody tr:not(.holds)")
    assert re.search(r"^address\s+8\s+10(\.0)? ms\s+103 /s\s+6\.\d ms\s+3\d(\.\d)? ms\s+0\s+7 failed$", other), other
    for width, theme in looks(tab):
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        shoot(tab, f"page-waiting-{width}-{theme}", whole=True)
        assert "calls" not in hidden_columns(tab)


def test_many_fronts_are_shown_when_somebody_wants_them(window: Window, served: Served) -> None:
    tab = window.open(served("ill"))
    rows = tab.locator("#fronts tbody tr")
    assert rows.count() == 8
    tab.get_by_role("button", name="Show all 40").click()
    assert rows.count() == 40
    assert rows.first.locator("td").first.get_attribute("title").startswith(scenes.LONG)
    tab.get_by_role("button", name="Show 8").click()
    assert rows.count() == 8


def test_a_job_that_recovers_says_how_far_it_is(window: Window, served: Served) -> None:
    tab = window.open(served("catching_up"))
    assert "index catches up" in text(tab, "#verdict")
    assert re.search(r"Min time is .+ behind and catches up; at this pace in about \d+", text(tab, "#verdict"))
    assert tab.locator("line.end").count() > 0, "where the life before ended"
    shoot(tab, "page-catching-up")


def test_a_life_that_has_ended_says_why_and_what_to_do(window: Window, served: Served) -> None:
    tab = window.open(served("ended"))
    verdict = text(tab, "#verdict")
    assert "index is dead" in verdict
    assert 'step "count": raised ValueError: no such word' in verdict
    assert tab.locator("#verdict li").all_inner_texts() == [
        "Correct the function.",
        "Then start it again: lowtide recover flow.py. Its program does not, because the next life would end too.",
    ]
    shoot(tab, "page-ended")


def test_a_job_that_has_only_begun_claims_nothing(window: Window, served: Served) -> None:
    tab = window.open(served("new"))
    assert "index is starting" in text(tab, "#verdict")
    tiles = tab.locator(".tile dd:not(.sub)").all_inner_texts()
    assert tiles == [*["\N{EN DASH}"] * 4, "none", "never"]
    assert "None yet." in text(tab, "#snapshots")
    shoot(tab, "page-new")


def test_a_job_that_is_gone_is_said_to_be_and_what_was_known_stays(browser: Any) -> None:
    window = Window(browser)
    with scenes.healthy() as job:
        tab = window.open(job)
    tab.locator("#verdict strong", has_text="orders does not answer").wait_for()
    assert tab.locator("body.stale").count() == 1
    assert "The page shows how it stood at" in text(tab, "#verdict")
    assert "lowtide status orders --open" in text(tab, "#verdict")
    assert tab.locator(".tile").count() == 6
    assert tab.locator("figure path.line").count() >= 6
    shoot(tab, "page-gone")
    window.close()
    assert [each for each in window.complaints if "ERR_CONNECTION_REFUSED" not in each] == []


# -- words -------------------------------------------------------------------------------------------------------------


def test_the_page_and_the_manual_explain_the_same_words() -> None:
    found = re.findall(r'\["([^"]+)", "([^"]+)"\]', (FOLDER / "words.js").read_text())
    manual = (ROOT / "docs" / "monitoring.md").read_text().partition("\n### Words\n")[2].partition("\n## ")[0]
    assert len(found) == 11
    assert re.findall(r"^\| ([a-z ]+) \| ([A-Z].+) \|$", manual, re.MULTILINE) == found

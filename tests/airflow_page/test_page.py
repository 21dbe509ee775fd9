"""The page's answers about jobs in a real ZooKeeper, from a real Airflow API server, and the users who get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from controlled import TOKEN

if TYPE_CHECKING:
    from .conftest import Page

pytestmark = [pytest.mark.airflow, pytest.mark.zookeeper, pytest.mark.slow]

PATHS = ["", "static/page.js", "static/page.css", "api/jobs", "api/job?job=x&connection=lowtide_default"]


@pytest.mark.parametrize("path", PATHS)
def test_who_is_not_signed_in_sees_nothing(page: Page, path: str) -> None:
    assert page.get(path, user=None).status_code == 401
    refused = page.get(path, user=None, Authorization="Bearer nonsense")
    assert refused.status_code == 403
    assert "orders" not in refused.text


def test_a_viewer_gets_the_page_and_its_files(page: Page) -> None:
    answer = page.get("")
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    for name in ("page.js", "past.js", "timeline.js", "words.js"):
        found = page.get(f"static/{name}")
        assert (found.status_code, found.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    for name in ("page.html", "..%2fapp.py", "app.py", "none.js"):
        assert page.get(f"static/{name}").status_code == 404


def test_airflow_shows_the_page_in_its_navigation(page: Page) -> None:
    plugins = page.airflow.api("viewer")._send("GET", "/api/v2/plugins")["plugins"]
    (ours,) = [each for each in plugins if each["name"] == "lowtide"]
    (view,) = ours["external_views"]
    assert (view["destination"], view["url_route"], view["href"]) == ("nav", "lowtide", "lowtide/")
    assert page.airflow.api("viewer")._send("GET", "/api/v2/plugins/importErrors")["total_entries"] == 0


def test_all_jobs_are_listed_with_their_states(page: Page) -> None:
    answer = page.get("api/jobs").json()
    found = {each["job"]: (each["state"], each["listed"]) for each in answer["jobs"]}
    jobs = page.jobs
    assert found == {
        jobs.living: ("running", True),
        jobs.dead: ("failed", True),
        "elsewhere": ("unreachable", True),
        "to come": ("unknown", True),
        "unconnected": ("unreachable", True),
        jobs.gone: ("gone", False),
        jobs.mute: ("running", False),
    }
    assert [each["job"] for each in answer["jobs"]][:2] == [jobs.living, jobs.dead]
    whats = " ".join(each["what"] for each in answer["troubles"])
    assert "ZooKeeper did not answer" in whats
    assert "no connection 'lowtide_missing'" in whats


def test_a_job_that_lives_tells_its_figures_and_its_past(page: Page) -> None:
    answer = page.job(page.jobs.living)
    assert (answer["state"], answer["incarnation"], answer["to_do"], answer["troubles"]) == ("running", 3, [], [])
    live, history = answer["live"], answer["history"]
    assert live["holder"] == "front 3 (documents-1)"
    assert live["latency_ms"]["p99"] > live["latency_ms"]["p50"] > 0
    assert len(history["fine"]) > 800
    assert len(history["coarse"]) > 50
    assert {"snapshot_failed", "tracker_restarted", "stalled"} <= {each["event"] for each in history["marks"]}
    assert [life["phase"] for life in answer["lives"]] == ["failed", "gone", "running"]
    first, second, third = answer["lives"]
    assert first["cause"] == "worker 1/0 died: killed by SIGKILL"
    assert (second["about"], second["ended_ms"]) == (True, third["began_ms"])
    assert (third["ended_ms"], third["commit"]) == (None, "000002-0003")
    assert len(answer["snapshots"]) == 9
    assert [each["id"] for each in answer["snapshots"] if each["last"]] == ["000003-0003"]
    assert answer["snapshots"][1]["name"] == "before the update"


def test_only_what_is_new_of_the_past_is_reported_again(page: Page) -> None:
    whole = page.job(page.jobs.living)["history"]
    rest = page.job(page.jobs.living, since_ms=whole["fine"][-11][0])["history"]
    assert rest["fine"] == whole["fine"][-10:]
    assert rest["holders"] == whole["holders"]


def test_a_dead_job_says_since_when_why_and_what_to_do(page: Page) -> None:
    answer = page.job(page.jobs.dead)
    assert (answer["state"], answer["live"], answer["history"]) == ("failed", None, None)
    assert answer["why"].startswith('step "count": raised ValueError: no such word')
    first, *rest = answer["to_do"]
    assert first == "Correct the function, or give the flow dead_letters."
    assert f"under Required actions, in the task ask_a_person of the DAG lowtide_recover__{page.jobs.dead}:" in rest[0]
    assert "restarts it." not in rest[0]
    assert "begins from commit 000001-0003, with everything before 20" in rest[1]
    assert "the stream team, +49 30 1234" in rest[2]
    (life,) = answer["lives"]
    assert 11 * 60_000 < answer["asked_ms"] - life["ended_ms"] < 60 * 60_000
    assert not life["about"]
    assert answer["delivered_ms"] < life["ended_ms"] + 1000


def test_a_commit_that_cannot_be_read_is_shown_as_damaged(page: Page) -> None:
    damaged, *others = page.job(page.jobs.dead)["snapshots"]
    assert (damaged["rows"], damaged["bytes"]) == (None, None)
    assert damaged["why"]
    assert [each["rows"] for each in others] == [2, 2]
    assert [each["why"] for each in others] == ["", ""]


def test_a_job_that_ended_without_a_word_is_dead_since_about_when_it_last_reported_something(page: Page) -> None:
    answer = page.job(page.jobs.gone)
    assert answer["state"] == "gone"
    assert "gone without reporting an end" in answer["why"]
    assert any("not in the jobs file" in each for each in answer["to_do"])
    assert any("It has no commit" in each for each in answer["to_do"])
    (life,) = answer["lives"]
    assert (life["phase"], life["about"], life["ended_ms"]) == ("gone", True, answer["delivered_ms"])


def test_a_job_that_runs_but_does_not_answer_is_shown_as_zookeeper_knows_it(page: Page) -> None:
    answer = page.job(page.jobs.mute)
    assert (answer["state"], answer["live"]) == ("running", None)
    assert [each["what"] for each in answer["troubles"]] == [
        "the job's control API does not answer: [Errno 111] Connection refused"
    ]


def test_a_place_that_does_not_answer_is_said_to_be_so(page: Page) -> None:
    answer = page.job("elsewhere", connection="lowtide_away")
    assert (answer["state"], answer["lives"]) == ("unreachable", [])
    assert "ZooKeeper did not answer" in answer["troubles"][0]["what"]
    assert page.job("unconnected", connection="lowtide_missing")["state"] == "unreachable"


def test_connections_that_hold_no_jobs_are_nobody_s_business(page: Page) -> None:
    assert page.get("api/job?job=x&connection=aws_default").status_code == 404
    assert page.get("api/job?job=&connection=lowtide_default").status_code == 422
    assert page.get("api/job?job=x&connection=lowtide_default&since_ms=-1").status_code == 422


def test_no_answer_has_a_secret(page: Page) -> None:
    answers = [page.get("api/jobs").text, page.get("").text]
    names = (page.jobs.living, page.jobs.dead, page.jobs.gone, page.jobs.mute)
    answers += [page.get(f"api/job?job={name}&connection=lowtide_default").text for name in names]
    answers.append(page.get("api/job?job=elsewhere&connection=lowtide_away").text)
    for answer in answers:
        assert TOKEN not in answer
        assert "a-password-of-zookeeper" not in answer

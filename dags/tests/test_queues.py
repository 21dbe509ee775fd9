"""A job's news as queues of Airflow's common.messaging."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def trigger(**given: Any) -> Any:
    queues = pytest.importorskip("airflow.providers.common.messaging.triggers.msg_queue")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return queues.MessageQueueTrigger(**given)


@pytest.mark.parametrize(
    ("given", "kind", "arguments"),
    [
        ({"scheme": "lowtide", "job": "orders"}, "DeliveredTimePassedTrigger", {"every_s": 3600}),
        ({"scheme": "lowtide", "job": "orders", "what": "deaths"}, "JobDiedTrigger", {"gone_s": 3.0}),
        (
            {"scheme": "lowtide", "job": "orders", "what": "files", "sink": "lake", "lowtide_conn_id": "other"},
            "FolderCompleteTrigger",
            {"sink": "lake", "lowtide_conn_id": "other"},
        ),
        ({"queue": "lowtide://orders/hours", "every_s": 60}, "DeliveredTimePassedTrigger", {"every_s": 60}),
        ({"queue": "lowtide://orders/files/my%20lake"}, "FolderCompleteTrigger", {"sink": "my lake"}),
    ],
)
def test_airflow_finds_the_watcher_of_a_queue(given: dict[str, Any], kind: str, arguments: dict[str, Any]) -> None:
    path, stored = trigger(**given).serialize()
    assert path == f"lowtide_airflow.triggers.watcher.{kind}"
    assert stored["job"] == "orders"
    assert {name: stored[name] for name in arguments} == arguments


def test_what_is_no_queue_of_a_job_is_refused() -> None:
    with pytest.raises(ValueError, match="not recognized"):
        trigger(queue="lowtide://orders/minutes").serialize()
    with pytest.raises(ValueError, match="write one of deaths, hours, files"):
        trigger(scheme="lowtide", job="orders", what="minutes").serialize()

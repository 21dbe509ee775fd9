"""News of a job as a queue of Airflow's common.messaging: `MessageQueueTrigger(scheme="lowtide", ...)`.

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

hours = MessageQueueTrigger(scheme="lowtide", job="orders", what="hours")
files = MessageQueueTrigger(scheme="lowtide", job="orders", what="files", sink="archive")
deaths = MessageQueueTrigger(scheme="lowtide", job="orders", what="deaths")
with DAG("revenue", schedule=[Asset("orders_hours", watchers=[AssetWatcher(name="orders_hours", trigger=hours)])]):
    ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from lowtide_airflow.asset_uris import SCHEME
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.triggers.watcher import DeliveredTimePassedTrigger, FolderCompleteTrigger, JobDiedTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger

    from lowtide_airflow.triggers.watcher import JobEventTrigger

__all__ = ["LowtideMessageQueueProvider"]

KINDS: dict[str, type[JobEventTrigger]] = {
    "deaths": JobDiedTrigger,
    "hours": DeliveredTimePassedTrigger,
    "files": FolderCompleteTrigger,
}


class LowtideMessageQueueProvider(BaseMessageQueueProvider):
    """The queues of a job: its deaths, its complete hours, and the complete folders of a sink of files."""

    scheme = SCHEME

    def queue_matches(self, queue: str) -> bool:
        """Return whether a URI is that of a queue: `lowtide://JOB/hours`, as of assets."""
        uri = urlsplit(queue)
        return uri.scheme == SCHEME and bool(uri.netloc) and uri.path.strip("/").partition("/")[0] in KINDS

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return what makes the watcher; `what` and the arguments of that watcher are its own."""
        return cast("type[BaseEventTrigger]", watcher)

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments that a URI stands for."""
        uri = urlsplit(queue)
        what, _, sink = uri.path.strip("/").partition("/")
        return {"job": unquote(uri.netloc), "what": what, **({"sink": unquote(sink)} if sink else {})}


def watcher(
    *, job: str, what: str = "hours", lowtide_conn_id: str = LowtideHook.default_conn_name, **given: Any
) -> JobEventTrigger:
    """Return the watcher of a queue.

    Args:
        job: the job's name.
        what: "hours", "files" or "deaths".
        lowtide_conn_id: the Airflow connection's id.
        given: the watcher's other arguments: `sink` of "files", `every_s` of "hours", `poll_interval`.
    """
    if what not in KINDS:
        raise ValueError(f"what is {what!r}: write one of {', '.join(KINDS)}")
    return KINDS[what](job=job, lowtide_conn_id=lowtide_conn_id, **given)

"""Airflow 3.0 to 3.3 as one: every name that lies elsewhere in an older one, and everything that only a newer one has.

What is new is looked for here, once, and used where it is there; nothing else asks for Airflow's version.

| 3.3 has | where it is missing |
|---|---|
| questions under *Required actions* | a task fails with the question; clearing it says yes (`operators/question.py`) |
| pages of plugins in the navigation | none: a job's own page has the same |
| a connection that is read without blocking a trigger's loop | it is read in a thread |
| state that belongs to an asset | an Airflow variable |
| state that belongs to a task, over its tries | none: ZooKeeper refuses the second of two programs |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from asgiref.sync import sync_to_async

if TYPE_CHECKING:
    from airflow.sdk import BaseHook, Connection
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        TaskDeferred,
    )
    from airflow.triggers.base import BaseEventTrigger
else:
    try:
        from airflow.sdk import BaseHook
    except ImportError:
        from airflow.hooks.base import BaseHook
    try:
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowSkipException,
            TaskDeferred,
        )
    except ImportError:
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowSkipException,
            TaskDeferred,
        )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "BaseHook",
    "Kept",
    "TaskDeferred",
    "has_pages",
    "kept_by_asset",
    "kept_by_task",
    "read_connection",
]

T = TypeVar("T")

DIGEST = 12


class Kept(Protocol):
    """Values that Airflow keeps for a trigger of an asset, over restarts of the triggerer."""

    async def aget(self, key: str, /) -> Any:
        """Return a value; None if there is none."""

    async def aset(self, key: str, value: Any, /) -> None:
        """Keep a value."""


async def read_connection(conn_id: str, read: Callable[[Connection], T]) -> T:
    """Read an Airflow connection in a trigger, without blocking its event loop.

    Args:
        conn_id: the connection's id.
        read: makes something of the connection; in Airflow 3.0 a look at its fields may ask the supervisor too.
    """
    if hasattr(BaseHook, "aget_connection"):
        return read(await BaseHook.aget_connection(conn_id))
    return await in_a_thread(lambda: read(BaseHook.get_connection(conn_id)))


def kept_by_asset(trigger: BaseEventTrigger, name: str, of: Mapping[str, Any]) -> Kept | None:
    """Return what Airflow keeps for a trigger of an asset; None outside the triggerer.

    Args:
        trigger: an asset's watcher.
        name: what it watches, in an id.
        of: the arguments that distinguish it from other triggers of its kind.
    """
    if hasattr(trigger, "asset_state_store"):
        return trigger.asset_state_store
    return _Variables(f"{name}__{_digest(of)}") if trigger.trigger_id is not None else None


def kept_by_task(context: Mapping[str, Any]) -> Any:
    """Return what Airflow keeps for a task over its tries, with `get` and `set`; None where it keeps nothing."""
    return context.get("task_state_store")


def has_pages() -> bool:
    """Return whether pages of plugins are in the navigation, and know who is signed in."""
    from airflow.plugins_manager import AirflowPlugin

    return hasattr(AirflowPlugin, "external_views")


class _Variables:
    """Keeps values in Airflow variables, whose names have a common end."""

    def __init__(self, of: str) -> None:
        self._of = of

    async def aget(self, key: str, /) -> Any:
        from airflow.sdk import Variable

        return await in_a_thread(Variable.get, f"{key}__{self._of}", None)

    async def aset(self, key: str, value: Any, /) -> None:
        from airflow.sdk import Variable

        await in_a_thread(Variable.set, f"{key}__{self._of}", str(value), "Kept by a watcher of Lowtide")


async def in_a_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that asks Airflow's supervisor: its answer comes through the trigger's event loop."""
    return await sync_to_async(function)(*arguments)


def _digest(of: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(of), sort_keys=True, default=str).encode()).hexdigest()[:DIGEST]

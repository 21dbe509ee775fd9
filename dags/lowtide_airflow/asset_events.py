"""What the events say that have started a DAG run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["payloads"]


def payloads(context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a DAG run's triggering events say, each asset's oldest first; none of a run that was begun by hand.

    Args:
        context: a task's.

    Returns:
        Of an event that a watcher's trigger has made, the trigger's payload; of others what the task has said.
    """
    found = []
    for events in (context.get("triggering_asset_events") or {}).values():
        for event in events:
            extra = dict(event.extra or {})
            found.append(dict(extra["payload"]) if extra.get("from_trigger") else extra)
    return found

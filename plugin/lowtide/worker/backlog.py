"""The backlog of a task: messages that its worker has not handled yet."""

from __future__ import annotations

from collections import deque

from lowtide.core.frames import rows_in
from lowtide.process.wire import Kind

GROUP_MESSAGES = 64
"""The largest number of frames handled together."""


class Backlog:
    """Messages in the order they came, given out in small groups, with other work between them. Pure.

    Args:
        max_rows: The largest number of records in the frames of a group; a single frame may have more.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._messages: deque[tuple[int, bytes]] = deque()

    def __bool__(self) -> bool:
        """Return whether anything is left."""
        return bool(self._messages)

    def add(self, messages: list[tuple[int, bytes]]) -> None:
        """Add messages after those that are here."""
        self._messages.extend(messages)

    def group(self) -> tuple[int, list[bytes]]:
        """Take out the next message with its kind and, if it is a frame, the frames that directly follow it."""
        messages = self._messages
        kind, first = messages.popleft()
        group = [first]
        rows = rows_in(first)
        while kind == Kind.FRAME and messages and messages[0][0] == kind and len(group) < GROUP_MESSAGES:
            rows += rows_in(messages[0][1])
            if rows > self._max_rows:
                break
            group.append(messages.popleft()[1])
        return kind, group

    def clear(self) -> None:
        """Drop everything: the task has gone."""
        self._messages.clear()

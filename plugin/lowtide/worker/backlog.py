"""The backlog of a task: messages that its worker has not handled yet."""

from __future__ import annotations

from collections import deque

from lowtide.core.frames import rows_in
from lowtide.process.wire import Kind

GROUP_MESSAGES = 64
"""How many frames are dealt with together at most."""


class Backlog:
    """Messages in the order they came, given out in groups that are small enough to look up in between. Pure.

    Args:
        max_rows: How many records the frames of a group bring at most; a single frame may bring more.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._messages: deque[tuple[int, bytes]] = deque()

    def __bool__(self) -> bool:
        """Return whether anything is left."""
        return bool(self._messages)

    def add(self, messages: list[tuple[int, bytes]]) -> None:
        """Put messages behind those that are here."""
        self._messages.extend(messages)

    def group(self) -> tuple[int, list[bytes]]:
        """Take out the next message with its kind, and if it is a frame, frames that follow it at once."""
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
        """Forget everything: the task has gone."""
        self._messages.clear()

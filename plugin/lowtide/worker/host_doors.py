"""A host's doors: a Unix socket for tasks of its own executor, and what others reach, where there are others.

The fork server opens them before it forks the host, and is its executor's child: the JVM whose tasks come to the Unix
socket is of the same machine, user and mount namespace.
"""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack

from lowtide.process.doors import DoorKind, Doors
from lowtide.process.sockets_folder import SocketsRefused

LOG = logging.getLogger(__name__)
OVER_TCP = "tasks of this executor talk to its workers over TCP, as others do"


class HostDoors:
    """Opens the doors of an executor's hosts.

    Where other executors are reached over TCP, a Unix socket saves time and nothing depends on it: if the system
    refuses one, there is none.

    Args:
        kind: What tasks of other executors connect to.
        host: The host at which to listen for them; a name or an address.

    Raises:
        SocketsRefused: the kind is that of Unix sockets, and the system does not allow them.
    """

    def __init__(self, kind: DoorKind, host: str) -> None:
        self._doors: list[Doors] = []
        if kind != DoorKind.UNIX:
            try:
                self._doors.append(Doors(DoorKind.UNIX, ""))
            except SocketsRefused as error:
                LOG.warning("%s: %s", OVER_TCP, error)
        self._doors.append(Doors(kind, host))

    def open(self, owner: ExitStack) -> list[tuple[socket.socket, str]]:
        """Open a host's; return each with its address: first that for tasks of its executor, last that for others.

        Args:
            owner: Closes them.

        Raises:
            OSError: the host is not this machine's.
            SocketsRefused: as when this was made.
        """
        opened = []
        for doors in self._doors:
            try:
                listener, address = doors.open("host")
            except SocketsRefused as error:
                if doors is self._doors[-1]:
                    raise
                LOG.warning("%s: %s", OVER_TCP, error)
            else:
                opened.append((owner.enter_context(listener), address))
        return opened

    def relay(self) -> tuple[socket.socket, str] | None:
        """Open the door of a relay, for processes of this machine; None where there are no Unix sockets."""
        first = self._doors[0]
        if first.kind != DoorKind.UNIX:
            return None
        try:
            return first.open("relay")
        except SocketsRefused as error:
            LOG.warning("hosts of this executor connect to the tracker themselves: %s", error)
            return None

    def close(self) -> None:
        """Remove what they have left on the disk."""
        for doors in self._doors:
            doors.close()

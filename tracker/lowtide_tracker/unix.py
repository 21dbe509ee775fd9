"""Unix sockets: doors for this user's processes on this machine alone, each a file in a folder of mode 0700.

The address of one is `unix:/path`; that of a door which other machines may reach is `host:port`.
"""

import errno
import os
import socket
import stat
import struct
import time
from contextlib import suppress

from lowtide_tracker.strangers import BACKLOG

UNIX = "unix:"
"""Begins the address of a Unix socket."""
PATH_BYTES = 107
"""The longest path that the kernel takes."""
ROOM_POLL_S = 0.01
"""Interval of attempts while a door's queue is full."""
_CREDENTIALS = struct.Struct("3i")


def is_unix(address: str) -> bool:
    """Return whether an address is that of a Unix socket."""
    return address.startswith(UNIX)


def target_of(address: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    """Return an address as a socket of its family takes it."""
    if is_unix(address):
        return socket.AF_UNIX, address.removeprefix(UNIX)
    host, _, port = address.rpartition(":")
    return socket.AF_INET, (host, int(port))


def address_of(listener: socket.socket) -> str:
    """Return the address of a listening socket."""
    name = listener.getsockname()
    return f"{UNIX}{name}" if listener.family == socket.AF_UNIX else f"{name[0]}:{name[1]}"


def connected(address: str, limit_s: float) -> socket.socket:
    """Return a connection to an address.

    Raises:
        OSError: nobody listens there, or takes connections within the limit.
    """
    family, target = target_of(address)
    if isinstance(target, tuple):
        return socket.create_connection(target, limit_s)
    until_s = time.monotonic() + limit_s
    connection = socket.socket(family)
    try:
        connection.settimeout(limit_s)
        while True:
            try:
                connection.connect(target)
            except BlockingIOError:  # Its queue is full; the kernel does not say when there is room.
                if time.monotonic() >= until_s:
                    raise TimeoutError(f"it has taken no connection for {limit_s:g} s") from None
                time.sleep(ROOM_POLL_S)
            else:
                return connection
    except BaseException:
        connection.close()
        raise


def listen_at(path: str) -> socket.socket:
    """Listen at a path, in a folder that is this user's alone.

    Raises:
        OSError: the path is too long or taken, or others may enter its folder.
    """
    size = len(os.fsencode(path))
    if size > PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, f"a path of {size} bytes, and a Unix socket's has {PATH_BYTES} at most", path)
    folder = os.path.dirname(path)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(
            errno.EACCES,
            f"others may enter it: it is of user {found.st_uid}, with mode {stat.S_IMODE(found.st_mode):04o}, and has "
            f"to be of user {os.geteuid()}, with mode 0700",
            folder,
        )
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def forget(address: str) -> None:
    """Remove the file of a Unix socket at which nobody listens any more; over TCP there is none."""
    if is_unix(address):
        with suppress(FileNotFoundError):
            os.unlink(address.removeprefix(UNIX))


def why_refused(connection: socket.socket) -> str:
    """Return why the peer at the other end is not spoken to; empty if it may try.

    The kernel says whose process has connected. Over TCP it does not know, and only the peer's proof tells.
    """
    if connection.family != socket.AF_UNIX:
        return ""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return "" if uid == os.geteuid() else f"process {pid} is of user {uid}, not of {os.geteuid()} as this one"

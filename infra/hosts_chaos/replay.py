"""Sends again what connections to a host began with: `replay.py SECONDS ADDRESS`, the bytes by port as JSON of hex.

It runs in the network of a host that has recorded them. It prints, by port, whether the other end hung up in time.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def hung_up(address: str, port: int, said: bytes, seconds: float) -> bool:
    """Say it; return whether the port ends the connection."""
    deadline = time.monotonic() + seconds
    try:
        with socket.create_connection((address, port), seconds) as connection:
            connection.sendall(said)
            while (left_s := deadline - time.monotonic()) > 0:
                connection.settimeout(left_s)
                if not connection.recv(1 << 16):
                    return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


if __name__ == "__main__":
    seconds, address = sys.argv[1:]
    known: dict[str, str] = json.load(sys.stdin)
    with ThreadPoolExecutor(max(1, len(known))) as hands:
        ended = hands.map(
            lambda each: hung_up(address, int(each[0]), bytes.fromhex(each[1]), float(seconds)), known.items()
        )
        sys.stdout.write(json.dumps(dict(zip(known, ended, strict=True))))

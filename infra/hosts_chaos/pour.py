"""Pours garbage into ports, one after another: `pour.py BYTES SECONDS ADDRESS PORT...`; prints how much each took.

It runs in the network of a host that should not reach them.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

CHUNK = os.urandom(1 << 20)


def poured(address: str, port: int, most: int, seconds: float) -> int:
    """Count the bytes that a port takes before it hangs up, the time is over, or it has had enough."""
    sent, deadline = 0, time.monotonic() + seconds
    try:
        with socket.create_connection((address, port), seconds) as connection:
            connection.settimeout(1.0)
            while sent < most and time.monotonic() < deadline:
                sent += connection.send(CHUNK)
    except OSError:
        pass
    return sent


if __name__ == "__main__":
    most, seconds, address, *ports = sys.argv[1:]
    sys.stdout.write(json.dumps({port: poured(address, int(port), int(most), float(seconds)) for port in ports}))

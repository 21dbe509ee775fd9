"""Searching the packets of a device: its end, whatever goes on there."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest
from hanging import HANGS_S
from packets import Packets

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="packets are seen by root alone")


def test_what_came_before_the_end_is_searched_and_the_search_ends_although_the_device_is_never_quiet() -> None:
    over = threading.Event()
    target = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    target.bind(("127.0.0.1", 0))
    source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def talk() -> None:
        while not over.wait(0.005):
            source.sendto(b"x" * 200, target.getsockname())

    talking = threading.Thread(target=talk)
    talking.start()
    packets = Packets("lo", {"a word": b"a-word-of-a-test", "a later one": b"a-later-word"})

    def listen() -> None:
        with packets:
            time.sleep(0.2)
            source.sendto(b"a-word-of-a-test", target.getsockname())
        source.sendto(b"a-later-word", target.getsockname())

    listening = threading.Thread(target=listen, daemon=True)
    try:
        listening.start()
        listening.join(HANGS_S / 10)
        assert not listening.is_alive(), "the search does not end"
        assert (packets.found["a word"] > 0, packets.found["a later one"]) == (True, 0)
    finally:
        over.set()
        talking.join()
        listening.join(HANGS_S / 10)
        source.close()
        target.close()

"""Where a control API that listens everywhere says that it is."""

from __future__ import annotations

import socket

import pytest

from lowtide.status.control import self_address


def named(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let this machine's name lead to these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)


def test_what_the_conf_names_is_published_as_it_is() -> None:
    assert self_address("127.0.0.1") == "127.0.0.1"
    assert self_address("driver.example") == "driver.example"


def test_all_addresses_are_published_as_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "10.77.0.70")
    assert self_address("0.0.0.0") == "10.77.0.70"


def test_a_name_that_leads_to_loopback_or_nowhere_leaves_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "127.0.1.1")
    assert self_address("0.0.0.0") == "127.0.0.1"
    named(monkeypatch)
    assert self_address("::") == "::1"

    def fails(*_: object) -> list[object]:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert self_address("0.0.0.0") == "127.0.0.1"

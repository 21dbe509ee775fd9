"""Ports: free, held, by whom."""

import os
import socket

from lowtide.embedded.ports import FREE_PORTS, HOST, answers, free_port, is_free, port_owner


def test_a_port_that_somebody_listens_on_is_not_free_and_its_owner_is_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert answers(port)
        owner = port_owner(port)
        assert owner is not None
        assert owner.pid == os.getpid()
        assert str(owner).startswith(f"process {os.getpid()} (")
    assert is_free(port)
    assert not answers(port)
    assert port_owner(port) is None


def test_a_port_held_on_all_addresses_is_not_free_on_loopback() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_free_ports_are_free_and_none_that_outgoing_connections_get() -> None:
    ports = {free_port() for _ in range(20)}
    assert all(port in FREE_PORTS and is_free(port) for port in ports)
    assert len(ports) > 15


def test_a_port_that_is_spoken_for_is_not_given_again() -> None:
    spoken_for = [port for port in FREE_PORTS if port % 2]
    assert all(free_port(other_than=spoken_for) % 2 == 0 for _ in range(20))

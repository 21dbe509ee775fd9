"""Terraform's provider for these hosts: `hosts_network`, `hosts_host`, `hosts_program` and the resources they need.

A thing that has died by itself leaves Terraform's state at the next refresh, so that a plan shows it as to be created.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import wraps
from typing import Any

from terraform_provider import Kind, PlainProvider
from tf.iface import Resource, State
from tf.schema import Attribute, Schema
from tf.types import List, Map, Number, String

from lowtide_hosts.certificate import issue
from lowtide_hosts.errors import HostsError
from lowtide_hosts.host import Host
from lowtide_hosts.network import Network
from lowtide_hosts.program import Program, read, write


def _said(action: Callable[..., Any]) -> Callable[..., Any]:
    """Show failures as errors of Terraform's."""

    @wraps(action)
    def tried(self: Resource, context: Any, *states: State) -> State | None:
        try:
            done: State | None = action(self, context, *states)
        except (HostsError, OSError) as error:
            context.diagnostics.add_error(f"{context.type_name}: {action.__name__} failed", str(error))
            return None
        return done

    return tried


def _given(name: str, kind: Any, description: str, *, default: Any = None, secret: bool = False) -> Attribute:
    """Return an attribute set in the configuration; another value replaces the resource."""
    if default is None:
        return Attribute(name, kind, description, required=True, requires_replace=True, sensitive=secret)
    return Attribute(
        name, kind, description, optional=True, computed=True, default=default, requires_replace=True, sensitive=secret
    )


def _known(name: str, description: str, *, secret: bool = False) -> Attribute:
    """Return an attribute that is known once the resource exists."""
    return Attribute(name, String(), description, computed=True, sensitive=secret)


class _Made(Kind, Resource):  # type: ignore[misc]
    """Resource that is always replaced as a whole."""

    def update(self, _context: Any, _current: State, planned: State) -> State:
        return planned

    def upgrade(self, _context: Any, _version: int, old: State) -> State:
        return old


_ON_HOST = (
    _given("network", String(), "The network's name."),
    _given("host", String(), "The host's name."),
    _given("boot", String(), "The boot of the host that it belongs to: with another one it is recreated."),
)


def _host(state: State) -> Host | None:
    return Host.find(state["network"], state["host"])


def _up(planned: State) -> Host:
    host = _host(planned)
    if host is None:
        raise HostsError(f"host {planned['host']} is not up")
    return host


class NetworkResource(_Made):
    """A bridge."""

    kind = "network"
    schema = Schema(
        description="A network of this machine: a bridge.",
        attributes=[
            _given("name", String(), "Its name."),
            _given("cidr", String(), "Its addresses, like 10.77.0.0/24; the first is this machine's."),
            _known("gateway", "This machine's address in it."),
            _known("folder", "Where it keeps what it knows."),
        ],
    )

    @_said
    def create(self, _context: Any, planned: State) -> State:
        network = Network(planned["name"], planned["cidr"])
        network.create()
        return planned | {"gateway": network.gateway, "folder": str(network.folder)}

    @_said
    def read(self, _context: Any, current: State) -> State | None:
        return None if Network.find(current["name"]) is None else current

    @_said
    def delete(self, _context: Any, current: State) -> None:
        Network(current["name"], current["cidr"]).destroy()


class HostResource(_Made):
    """A host."""

    kind = "host"
    schema = Schema(
        description="A host: namespaces of its own, wired to a network.",
        attributes=[
            _given("network", String(), "The network's name."),
            _given("name", String(), "Its name; all hosts of the network know it."),
            _given("address", String(), "Its address."),
            _given("mounts", Map(String()), "What it has below /opt: name to a folder of this machine.", default={}),
            _given("hidden", List(String()), "Folders of this machine that it sees empty.", default=[]),
            _known("boot", "Tells this boot of it from another one."),
            _known("home", "Its /home, seen from outside."),
        ],
    )

    @_said
    def create(self, _context: Any, planned: State) -> State:
        host = Host(
            planned["network"], planned["name"], planned["address"], planned["mounts"], planned["hidden"]
        ).create()
        return planned | {"boot": host.boot, "home": str(host.home)}

    @_said
    def read(self, _context: Any, current: State) -> State | None:
        host = Host.find(current["network"], current["name"])
        return current if host is not None and host.boot == current["boot"] else None

    @_said
    def delete(self, _context: Any, current: State) -> None:
        Host(current["network"], current["name"], current["address"]).destroy()


class ProgramResource(_Made):
    """A program on a host."""

    kind = "program"
    schema = Schema(
        description="A program that runs on a host.",
        attributes=[
            *_ON_HOST,
            _given("name", String(), "Its name on that host; /home/NAME is its folder there."),
            _given("command", List(String()), "What is run; it must stay in the foreground."),
            _given("environment", Map(String()), "Its variables.", default={}, secret=True),
            _given("files", Map(String()), "Written into its folder first: path to content.", default={}, secret=True),
            _given("prepare", String(), "A shell command that is run before it, in its folder.", default=""),
            _given("port", Number(), "Where it has to accept connections; 0: nowhere.", default=0),
            _given("start_limit_s", Number(), "How long that may take.", default=60),
            _given("stop_limit_s", Number(), "How long it may take to end before it is killed.", default=5),
            _known("process", "Tells this process from another one."),
        ],
    )

    @_said
    def create(self, _context: Any, planned: State) -> State:
        host = _up(planned)
        given = {
            name: planned[name]
            for name in ("command", "environment", "files", "prepare", "start_limit_s", "stop_limit_s")
        }
        process = Program(host, planned["name"], port=int(planned["port"]), **given).start()
        return planned | {"process": str(process)}

    @_said
    def read(self, _context: Any, current: State) -> State | None:
        host = _host(current)
        process = None if host is None else Program.running(host, current["name"])
        return None if process is None or str(process) != current["process"] else current

    @_said
    def delete(self, _context: Any, current: State) -> None:
        host = _host(current)
        if host is not None:
            Program.stop(host, current["name"], float(current["stop_limit_s"]))


class _Drawn(_Made):
    """Resource that exists in Terraform's state alone."""

    def read(self, _context: Any, current: State) -> State:
        return current

    def delete(self, _context: Any, _current: State) -> None:
        return None


class CertificateResource(_Drawn):
    """An authority of its own, or a certificate signed by one."""

    kind = "certificate"
    schema = Schema(
        description="A certificate for names, and its key (PEM, PKCS#8); without an authority it is one itself.",
        attributes=[
            _given("names", List(String()), "The names and addresses it is for; of an authority, its name alone."),
            _given("authority_certificate", String(), "The authority's certificate.", default=""),
            _given("authority_key", String(), "The authority's key.", default="", secret=True),
            _known("certificate", "PEM."),
            _known("key", "PEM, PKCS#8.", secret=True),
        ],
    )

    @_said
    def create(self, _context: Any, planned: State) -> State:
        certificate, key = issue(planned["names"], planned["authority_certificate"], planned["authority_key"])
        return planned | {"certificate": certificate, "key": key}


class SecretResource(_Drawn):
    """A random secret."""

    kind = "secret"
    schema = Schema(
        description="128 random bits.",
        attributes=[
            _given("name", String(), "What it is for."),
            _known("hex", "As 32 hexadecimal digits.", secret=True),
            _known("id", "As 22 characters of URL-safe base64, the first of which is not a dash."),
        ],
    )

    @_said
    def create(self, _context: Any, planned: State) -> State:
        while (text := secrets.token_urlsafe(16)).startswith("-"):
            continue
        return planned | {"hex": secrets.token_hex(16), "id": text}


class FilesResource(_Made):
    """Files on a host."""

    kind = "files"
    schema = Schema(
        description="Files in a folder of a host.",
        attributes=[
            *_ON_HOST,
            _given("name", String(), "The folder's name below /home."),
            _given("files", Map(String()), "Path below it to content; for the owner alone to read.", secret=True),
        ],
    )

    @_said
    def create(self, _context: Any, planned: State) -> State:
        host = _up(planned)
        for path, content in planned["files"].items():
            write(host.home / planned["name"] / path, content)
        return planned

    @_said
    def read(self, _context: Any, current: State) -> State | None:
        host = _host(current)
        if host is None:
            return None
        there = {path: read(host.home / current["name"] / path) for path in current["files"]}
        return current if there == current["files"] else None

    @_said
    def delete(self, _context: Any, current: State) -> None:
        host = _host(current)
        if host is not None:
            for path in current["files"]:
                (host.home / current["name"] / path).unlink(missing_ok=True)


class Hosts(PlainProvider):
    """The provider."""

    name = "lowtide.local/lowtide/hosts"
    prefix = "hosts_"

    def get_resources(self) -> list[Any]:
        return [NetworkResource, HostResource, ProgramResource, FilesResource, CertificateResource, SecretResource]

"""Hosts by hand: `python -m lowtide_hosts.cli NETWORK list|exec|lose|freeze|thaw|cut|mend|leftovers|remove ...`."""

from __future__ import annotations

import argparse
import json
import os
import sys

from lowtide_hosts.errors import HostsError
from lowtide_hosts.host import Host
from lowtide_hosts.network import FOLDER, Network, link_exists
from lowtide_hosts.processes import seeing


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 if that fails."""
    parser = argparse.ArgumentParser(prog="hosts", description=__doc__)
    parser.add_argument("network", help="the network's name")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the hosts that are up")
    commands.add_parser("leftovers", help="what is left of the network, as JSON; nothing is 0")
    commands.add_parser("remove", help="destroy it with all its hosts, where Terraform's state is lost")
    run = commands.add_parser("exec", help="run a command on a host")
    run.add_argument("--env", action="append", default=[], metavar="KEY=VALUE", help="a variable of it")
    run.add_argument("host")
    run.add_argument("argv", nargs=argparse.REMAINDER)
    for name, what in (
        ("lose", "pull its plug, for good"),
        ("freeze", "stop all its processes"),
        ("thaw", "let them go on"),
    ):
        commands.add_parser(name, help=what).add_argument("host")
    for name, what in (("cut", "let nothing arrive that it sends to another"), ("mend", "let it arrive again")):
        pair = commands.add_parser(name, help=what)
        pair.add_argument("host")
        pair.add_argument("other")
    asked = parser.parse_args(arguments)
    try:
        return _do(asked)
    except HostsError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def leftovers(network: str) -> dict[str, int]:
    """List the leftovers of a network: hosts, processes on them or inside their namespaces, devices and files."""
    hosts = Host.all(network)
    folder = FOLDER / network
    return {
        "hosts": len(hosts),
        "processes": len(seeing(folder)),
        "devices": int(link_exists(Network(network, "0.0.0.0/8").bridge))
        + sum(link_exists(host.device) for host in hosts),
        "files": sum(1 for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0,
    }


def remove(network: str) -> None:
    """Destroy a network and all its hosts, no matter who made them."""
    for host in Host.all(network):
        host.destroy()
    Network(network, "0.0.0.0/8").destroy()


def _do(asked: argparse.Namespace) -> int:
    if asked.command == "leftovers":
        left = leftovers(asked.network)
        sys.stdout.write(json.dumps(left) + "\n")
        return int(any(left.values()))
    if asked.command == "remove":
        remove(asked.network)
        return 0
    if asked.command == "list":
        for host in Host.all(asked.network):
            sys.stdout.write(f"{host.address:<15} {host.name}\n")
        return 0
    host = _found(asked.network, asked.host)
    if asked.command == "exec":
        argv = asked.argv[1:] if asked.argv[:1] == ["--"] else asked.argv
        environment = dict(pair.split("=", 1) for pair in asked.env)
        command = host.inside(argv, environment)
        os.execvp(command[0], command)
    if asked.command in {"cut", "mend"}:
        getattr(host, asked.command)(_found(asked.network, asked.other))
    else:
        getattr(host, asked.command)()
    return 0


def _found(network: str, name: str) -> Host:
    host = Host.find(network, name)
    if host is None:
        raise HostsError(f"host {name} is not up in network {network}")
    return host


if __name__ == "__main__":
    sys.exit(main())

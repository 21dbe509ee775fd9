"""A network: a bridge of this machine, to which hosts are wired."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path

from lowtide_hosts.errors import HostsError
from lowtide_hosts.processes import Process

FOLDER = Path("/var/lib/lowtide-hosts")
"""Folder for the state of all networks; a host does not see it."""
LOOPBACK = "127.0.0.1 localhost\n"


def ip(*arguments: str, within: Process | None = None) -> str:
    """Call `ip`, in the network of a process if one is given; return its output.

    Raises:
        HostsError: it failed.
    """
    entered = [] if within is None else ["nsenter", "--target", str(within.pid), "--net"]
    try:
        done = subprocess.run([*entered, "ip", *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise HostsError(f"there is no `{error.filename}` on this machine: install iproute2 and util-linux") from error
    if done.returncode:
        where = "" if within is None else f" in the network of process {within.pid}"
        raise HostsError(f"ip {' '.join(arguments)}{where}: {done.stderr.strip()}")
    return done.stdout


def link_exists(name: str) -> bool:
    """Return whether this machine has such a network device."""
    return Path("/sys/class/net", name).exists()


@dataclass(frozen=True)
class Network:
    """A network.

    Attributes:
        name: Its name; hosts are found by it.
        cidr: Its addresses, like `10.77.0.0/24`; the first one is this machine's.
    """

    name: str
    cidr: str

    @classmethod
    def find(cls, name: str) -> Network | None:
        """Return the network of that name, if there is one."""
        file = FOLDER / name / "network.json"
        if not file.is_file():
            return None
        network = cls(**json.loads(file.read_text()))
        return network if link_exists(network.bridge) else None

    @property
    def bridge(self) -> str:
        """Return the name of its bridge; the kernel takes 15 characters."""
        return f"lt-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    @property
    def gateway(self) -> str:
        """Return this machine's address in it."""
        return str(next(IPv4Network(self.cidr).hosts()))

    @property
    def prefix(self) -> int:
        """Return the length of its prefix in bits."""
        return IPv4Network(self.cidr).prefixlen

    @property
    def folder(self) -> Path:
        """Return the folder for the state of the network and of its hosts."""
        return FOLDER / self.name

    @property
    def hosts_file(self) -> Path:
        """Return the `/etc/hosts` of all its hosts."""
        return self.folder / "hosts"

    def create(self) -> None:
        """Make it.

        Raises:
            HostsError: its addresses or its name are taken.
        """
        if link_exists(self.bridge):
            way_out = f"destroy it where it was made, or by `python -m lowtide_hosts.cli {self.name} remove`"
            raise HostsError(f"network {self.name} exists already: {way_out}")
        routes = ip("-o", "-4", "addr", "show").splitlines()
        taken = [line.split()[1] for line in routes if IPv4Network(self.cidr).overlaps(_network_of(line.split()[3]))]
        if taken:
            raise HostsError(f"the addresses {self.cidr} are those of {taken[0]} already: take others")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.hosts_file.write_text(LOOPBACK)
        (self.folder / "resolv.conf").write_text("")
        ip("link", "add", self.bridge, "type", "bridge", "forward_delay", "0")
        ip("addr", "add", f"{self.gateway}/{self.prefix}", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        (self.folder / "network.json").write_text(json.dumps(asdict(self)))

    def destroy(self) -> None:
        """Destroy it, with the leftovers of its hosts."""
        if link_exists(self.bridge):
            ip("link", "delete", self.bridge)
        shutil.rmtree(self.folder, ignore_errors=True)
        if FOLDER.is_dir() and not any(FOLDER.iterdir()):
            FOLDER.rmdir()

    def name_host(self, name: str, address: str | None) -> None:
        """Give all hosts the address of one; None removes it.

        The file is written in place, since every host has it mounted.
        """
        with self._alone():
            lines = self.hosts_file.read_text().splitlines(keepends=True)
            lines = [line for line in lines if line.split()[1:] != [name]]
            if address is not None:
                lines.append(f"{address} {name}\n")
            with self.hosts_file.open("r+") as file:
                file.write("".join(lines))
                file.truncate()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _network_of(address: str) -> IPv4Network:
    return IPv4Network(address, strict=False)

"""Host: namespaces of its own, wired to a network, held by its first process."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lowtide_hosts.errors import HostsError
from lowtide_hosts.network import FOLDER, Network, ip, link_exists
from lowtide_hosts.processes import Process, entered, same_namespace

HOME = "/home"
"""Path of the programs' folders, as seen from inside a host."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_LIMIT_S = 10.0
NOBODY = "02:00:00:00:00:01"
"""A hardware address that no host has."""

BOOT = """\
set -e
hostname "$NAME"
ip link set lo up
mount --bind "$NETWORK/hosts" /etc/hosts
mount --bind "$NETWORK/resolv.conf" /etc/resolv.conf
mount --bind "$OWN/tmp" /tmp
mount -t tmpfs -o mode=755 none /opt
for pair in $MOUNTS; do
    mkdir -p "/opt/${pair%%=*}"
    mount --bind "${pair#*=}" "/opt/${pair%%=*}"
done
mount --bind "$OWN/home" /home
for hidden in $HIDDEN; do
    if [ -d "$hidden" ]; then mount -t tmpfs -o ro,size=4k none "$hidden"; fi
done
cd /
echo up
# A process whose parent has gone is this process's child: the kernel reaps it, as this one ignores SIGCHLD.
exec env --ignore-signal=CHLD sleep infinity >/dev/null 2>&1
"""


@dataclass(frozen=True)
class Host:
    """A host.

    Attributes:
        network: The network that it is wired to.
        name: Its name, known to all hosts of the network.
        address: Its address.
        mounts: Its mounts below `/opt`: name to a folder of this machine, read-only by convention.
        hidden: Folders of this machine that it sees as empty.
        first: Its first process; None before it is created.
    """

    network: str
    name: str
    address: str
    mounts: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[str] = ()
    first: Process | None = None

    @classmethod
    def find(cls, network: str, name: str) -> Host | None:
        """Return the host of that name, if it is up."""
        file = FOLDER / network / name / "host.json"
        if not file.is_file():
            return None
        known = json.loads(file.read_text())
        host = cls(**{**known, "first": Process(**known["first"])})
        return host if host.first is not None and host.first.can_be_entered else None

    @classmethod
    def all(cls, network: str) -> list[Host]:
        """Return all hosts of a network that are up."""
        names = sorted(file.parent.name for file in (FOLDER / network).glob("*/host.json"))
        return [host for host in (cls.find(network, name) for name in names) if host is not None]

    @property
    def folder(self) -> Path:
        """Return its folder on this machine's disk."""
        return FOLDER / self.network / self.name

    @property
    def home(self) -> Path:
        """Return its `/home`, seen from outside."""
        return self.folder / "home"

    @property
    def boot(self) -> str:
        """Return an id of its current boot."""
        return "" if self.first is None else str(self.first)

    @property
    def hardware(self) -> str:
        """Return the hardware address of its network device."""
        found: list[dict[str, str]] = json.loads(ip("-json", "link", "show", "eth0", within=self._running))
        return found[0]["address"]

    @property
    def device(self) -> str:
        """Return the end of its cable that is plugged into the bridge."""
        return f"lt{hashlib.sha256(f'{self.network}/{self.name}'.encode()).hexdigest()[:10]}"

    def create(self) -> Host:
        """Boot it; first remove what is left of a host of that name.

        Returns:
            The host with its first process.

        Raises:
            HostsError: the network is gone, the name is taken, or the kernel refuses.
        """
        network = Network.find(self.network)
        if network is None:
            raise HostsError(f"there is no network {self.network}")
        if Host.find(self.network, self.name) is not None:
            raise HostsError(f"host {self.name} is already up")
        self.destroy()
        for part in ("tmp", "home"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "tmp").chmod(0o1777)
        first = self._boot()
        try:
            self._wire(network, first)
            network.name_host(self.name, self.address)
        except BaseException:
            first.signal(signal.SIGKILL)
            raise
        known = asdict(self) | {"first": asdict(first)}
        (self.folder / "host.json").write_text(json.dumps(known))
        return Host(**{**known, "first": first})

    def destroy(self) -> None:
        """Kill everything on it, unplug it, and remove its files."""
        self.lose()
        network = Network.find(self.network)
        if network is not None:
            network.name_host(self.name, None)
        shutil.rmtree(self.folder, ignore_errors=True)

    def lose(self) -> None:
        """Pull its plug: drop its network, then all its processes, with notice to none. Its files stay, but unused."""
        host = self if self.first is not None else Host.find(self.network, self.name)
        if link_exists(self.device):
            ip("link", "delete", self.device)
        if host is not None and host.first is not None:
            everything, outside = same_namespace(host.first), entered(host.first)
            host.first.signal(signal.SIGKILL)
            _wake(outside)
            for process in everything:
                process.gone_within(BOOT_LIMIT_S)

    def cut(self, other: Host) -> None:
        """Drop everything that this host sends to another, with notice to neither, until `mend`.

        Its packets go to a hardware address that does not exist. Packets from the other host still arrive.
        """
        self._address(other, NOBODY)

    def divert(self, other: Host, by: Host) -> None:
        """Send everything that is for another host to a third one, with notice to none, until `mend`."""
        self._address(other, by.hardware)

    def mend(self, other: Host) -> None:
        """Let its packets arrive again."""
        ip("neigh", "del", other.address, "dev", "eth0", within=self._running)

    def freeze(self) -> None:
        """Stop all its processes where they are, until `thaw`."""
        self._all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume them, and the processes that have entered it from outside."""
        self._all(signal.SIGCONT)
        if self.first is not None:
            _wake(entered(self.first))

    def _address(self, other: Host, hardware: str) -> None:
        """Send what is for another host to a hardware address."""
        ip(
            "neigh",
            "replace",
            other.address,
            "lladdr",
            hardware,
            "dev",
            "eth0",
            "nud",
            "permanent",
            within=self._running,
        )

    @property
    def _running(self) -> Process:
        assert self.first is not None, "it is up"
        return self.first

    def _all(self, number: int) -> None:
        if self.first is not None:
            for process in same_namespace(self.first):
                if process != self.first:
                    process.signal(number)

    def inside(self, command: Sequence[str], environment: Mapping[str, str], folder: str = HOME) -> list[str]:
        """Return a command that runs a given one on it."""
        entered = ["nsenter", "--target", str(self._running.pid), "--net", "--uts", "--ipc", "--mount", "--pid"]
        known = {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", **environment}
        settings = [f"{key}={value}" for key, value in known.items()]
        return [*entered, f"--wdns={folder}", "env", "-i", *settings, *command]

    def _boot(self) -> Process:
        network = FOLDER / self.network
        given = {
            "PATH": PATH,
            "NAME": self.name,
            "NETWORK": str(network),
            "OWN": str(self.folder),
            "MOUNTS": " ".join(f"{name}={folder}" for name, folder in self.mounts.items()),
            "HIDDEN": " ".join([*self.hidden, str(FOLDER)]),
        }
        spaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.folder / "boot.log").open("w") as log:
            outer = subprocess.Popen(
                ["unshare", *spaces, "sh", "-c", BOOT],
                env=given, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        assert outer.stdout is not None
        with outer.stdout as said:
            up = said.readline()
        process = Process.of(outer.pid)
        first = process.children() if process is not None else []
        if up != b"up\n" or not first:
            outer.kill()
            raise HostsError(f"{self.name} does not boot: {(self.folder / 'boot.log').read_text().strip()[-800:]}")
        return first[0]

    def _wire(self, network: Network, first: Process) -> None:
        if link_exists(self.device):
            ip("link", "delete", self.device)
        ip("link", "add", self.device, "type", "veth", "peer", "name", "eth0", "netns", str(first.pid))
        ip("link", "set", self.device, "master", network.bridge, "up")
        ip("addr", "add", f"{self.address}/{network.prefix}", "dev", "eth0", within=first)
        ip("link", "set", "eth0", "up", within=first)
        ip("route", "add", "default", "via", network.gateway, within=first)


def _wake(outside: Sequence[Process]) -> None:
    """Resume processes outside of a host: `nsenter` stops itself together with its child, and nothing wakes it."""
    for process in outside:
        process.signal(signal.SIGCONT)

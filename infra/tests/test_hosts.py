"""Hosts as namespaces: booted, wired, cut, frozen, lost, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hanging import HANGS_S
from lowtide_hosts.cli import leftovers, main
from lowtide_hosts.errors import HostsError
from lowtide_hosts.host import Host
from lowtide_hosts.network import Network
from lowtide_hosts.processes import in_its_filesystem
from lowtide_hosts.program import Program
from tests.still_network import own_network

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hosts are made by root alone")
NAME = f"test-{os.getpid()}"
CIDR = f"10.{80 + os.getpid() % 100}.{os.getpid() // 100 % 256}.0/24"
OTHER_CIDR = f"10.{180 + os.getpid() % 70}.{os.getpid() // 100 % 256}.0/24"
SERVER = ["python3", "-m", "http.server", "8000"]


@pytest.fixture(name="network", scope="module")
def _network() -> Iterator[Network]:
    with own_network():
        network = Network(NAME, CIDR)
        network.create()
        yield network
        for host in Host.all(NAME):
            host.destroy()
        network.destroy()
        assert not any(leftovers(NAME).values())


@pytest.fixture(name="one", scope="module")
def _one(network: Network) -> Host:
    return host(network, "one", 10, hidden=[os.path.dirname(__file__)])


@pytest.fixture(name="two", scope="module")
def _two(network: Network) -> Host:
    return host(network, "two", 11)


def host(network: Network, name: str, number: int, **more: object) -> Host:
    address = network.gateway.rpartition(".")[0] + f".{number}"
    return Host(NAME, name, address, **more).create()  # type: ignore[arg-type]


def on(where: Host, script: str) -> str:
    command = where.inside(["sh", "-ec", script], {})
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANGS_S)
    return done.stdout.strip() or f"exit {done.returncode}"


def fetch(where: Host, other: str) -> str:
    script = f"import urllib.request as u; print(u.urlopen('http://{other}:8000/word', timeout=1).read().decode())"
    return on(where, f'python3 -c "{script}"')


def test_a_host_has_a_name_a_process_table_and_files_of_its_own(one: Host, two: Host) -> None:
    assert on(one, "hostname") == "one"
    assert on(one, "touch /tmp/here; ls /tmp") == "here"
    assert on(two, "ls /tmp") == "exit 0"
    assert on(one, f"ls {os.path.dirname(__file__)} || true") == "exit 0", "it is hidden"
    assert on(two, "ls /proc | grep -c '^[0-9]*$'") in {"3", "4", "5", "6"}, "it sees its own processes alone"


def test_a_program_is_reached_by_its_hosts_name_until_it_is_stopped(one: Host, two: Host) -> None:
    process = Program(two, "web", SERVER, files={"word": "hello"}, port=8000).start()
    assert fetch(one, "two") == "hello"
    assert Program.running(two, "web") == process
    Program.stop(two, "web", 5.0)
    assert Program.running(two, "web") is None
    assert fetch(one, "two") == "exit 1"


def test_a_program_that_ends_says_why(one: Host) -> None:
    with pytest.raises(HostsError, match=r"(?s)no such thing.*on one has ended"):
        Program(one, "broken", ["sh", "-c", "echo no such thing; exit 3"], port=9, start_limit_s=5).start()


def test_a_program_ends_with_all_that_it_has_started(one: Host) -> None:
    deaf = "trap '' TERM; sleep 1001 & exec python3 -m http.server 8001"
    Program(one, "parent", ["sh", "-c", deaf], port=8001).start()
    assert on(one, "pgrep -c -f 'sleep 100[1]'") == "1"
    Program.stop(one, "parent", 0.5)
    assert on(one, "pgrep -c -f 'sleep 100[1]'") == "0"


def test_an_orphan_that_ends_is_buried(one: Host) -> None:
    on(one, "sh -c '(sleep 0.2; exit 3) >/dev/null 2>&1 &'; sleep 0.6")
    assert on(one, "grep -l '^State:.Z' /proc/[0-9]*/status") == "exit 1"


def test_a_cut_lets_nothing_through_one_way(one: Host, two: Host) -> None:
    for each in (one, two):
        Program(each, "web", SERVER, files={"word": each.name}, port=8000).start()
    one.cut(two)
    assert fetch(one, "two") == "exit 1"
    one.mend(two)
    assert fetch(one, "two") == "two"


def test_a_frozen_host_answers_once_it_is_thawed(one: Host, two: Host) -> None:
    if Program.running(two, "web") is None:
        Program(two, "web", SERVER, files={"word": "two"}, port=8000).start()
    two.freeze()
    assert fetch(one, "two") == "exit 1"
    two.thaw()
    assert fetch(one, "two") == "two"


def test_what_has_entered_a_frozen_host_goes_on_once_it_is_thawed_or_lost(network: Network) -> None:
    for end in ("thaw", "lose"):
        four = host(network, "four", 13)
        before = leftovers(NAME)["processes"]
        command = four.inside(["sh", "-c", "sleep 1; echo awake"], {})
        inside = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        until(lambda: leftovers(NAME)["processes"] >= before + 3)  # noqa: B023
        four.freeze()
        until(lambda: stopped(inside.pid))  # noqa: B023
        assert main([NAME, end, "four"]) == 0
        text, _ = inside.communicate(timeout=HANGS_S)
        assert text == ("awake\n" if end == "thaw" else "")
        four.destroy()


def test_a_folder_is_named_as_its_file_system_knows_it() -> None:
    mounts = (
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "23 22 0:5 / /proc rw - proc proc rw\n"
        "24 22 254:1 /old /var rw - ext4 /dev/vdb rw\n"
        "25 22 254:1 /@var /var rw - ext4 /dev/vdb rw\n"
    )
    folder = Path("/var/lib/lowtide-hosts/lowtide")
    assert in_its_filesystem(folder, mounts) == Path("/@var/lib/lowtide-hosts/lowtide")
    assert in_its_filesystem(folder, mounts.splitlines()[0]) == folder


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stopped(pid: int) -> bool:
    return "State:\tT" in Path(f"/proc/{pid}/status").read_text()


def test_a_lost_host_is_gone_with_all_that_ran_there(network: Network, one: Host) -> None:
    three = host(network, "three", 12)
    process = Program(three, "web", SERVER, files={"word": "three"}, port=8000).start()
    assert main([NAME, "lose", "three"]) == 0
    assert not process.lives
    assert Host.find(NAME, "three") is None
    assert fetch(one, "three") == "exit 1"
    again = host(network, "three", 12)
    assert again.boot != three.boot
    assert on(again, "hostname") == "three"
    again.destroy()


def test_a_second_network_with_its_addresses_is_refused(network: Network) -> None:
    with pytest.raises(HostsError, match="are those of lt-"):
        Network(f"{NAME}-2", network.cidr).create()


def test_a_network_whose_maker_is_gone_is_removed_with_its_hosts(network: Network) -> None:
    name = f"{network.name}-3"
    lost = Network(name, OTHER_CIDR)
    lost.create()
    Host(name, "orphan", lost.gateway.rpartition(".")[0] + ".9").create()
    with pytest.raises(HostsError, match=f"{name} remove"):
        lost.create()
    assert main([name, "remove"]) == 0
    assert not any(leftovers(name).values())

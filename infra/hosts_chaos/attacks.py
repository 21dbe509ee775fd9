"""Attacks of somebody who is on the network and has no secret: garbage, replays, and changes on the way.

Each function returns when the attack has met what it has to meet, and raises Undone if it has not.
"""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lowtide_hosts.host import Host
from lowtide_hosts.sockets import LISTENING, sockets
from packets import Packets

from .errors import Undone

FOLDER = Path(__file__).parent
GARBAGE = 1 << 30
POUR_S = 5.0
"""For each port."""
POUR_LIMIT_S = 300.0
REFUSED = re.compile(r"refused a connection")
"""Message of refusal in the logs of the job's processes, its own and those of Spark's executors, once a minute."""
SAID_LIMIT_S = 30.0
"""Limit on the time until a log says what it has to."""
REPLAY_LIMIT_S = 20.0
"""Longer than any door lets a stranger stay."""
CHANGE_LIMIT_S = 60.0
"""Limit on the time until something passes that can be changed."""
NOTICED = {
    "frame": re.compile(r"frame \d+ of worker number \d+ to worker \S+ cannot be opened: it was changed on its way"),
    "repeat": re.compile(r"a frame came twice or too late on the way from worker number \d+ to worker \S+"),
}
"""For each change of a frame, the message that names its edge; a changed record of TLS ends its connection, unnamed."""


def pour(stranger: Host, host: Host) -> None:
    """Pour a gigabyte of garbage into a host's open ports; its logs have to say that it was refused."""
    ports = open_ports(host)
    if not ports:
        raise Undone(f"{host.name} has no open port: nothing runs there")
    each = str(GARBAGE // len(ports))
    done = subprocess.run(
        inside(stranger, "pour.py", each, str(POUR_S), host.address, *map(str, ports)),
        check=False, capture_output=True, text=True, timeout=POUR_LIMIT_S,
    )  # fmt: skip
    if done.returncode:
        raise Undone(f"no garbage could be poured into {host.name}: {done.stderr[-800:]}")
    _until(lambda: said([host], REFUSED) > 0, f"no log on {host.name} says that the garbage was refused: {done.stdout}")


def replay(stranger: Host, host: Host, peers: Sequence[Host], packets: Packets) -> None:
    """Say to a host's open ports again what its peers' connections to them began with; all have to hang up."""
    ports, known = set(open_ports(host)), {peer.address for peer in peers}
    openings = packets.openings(
        lambda source, target: target[0] == host.address and target[1] in ports and source[0] in known
    )
    if not openings:
        raise Undone(f"no connection to {host.name} was recorded")
    done = subprocess.run(
        inside(stranger, "replay.py", str(REPLAY_LIMIT_S), host.address),
        input=json.dumps({port: begun.hex() for (_, port), begun in openings.items()}),
        check=False, capture_output=True, text=True, timeout=3 * REPLAY_LIMIT_S,
    )  # fmt: skip
    if done.returncode:
        raise Undone(f"nothing could be replayed to {host.name}: {done.stderr[-800:]}")
    taken = [port for port, refused in json.loads(done.stdout).items() if not refused]
    if taken:
        raise Undone(f"{host.name} does not refuse a replayed connection at port {', '.join(taken)}")


def change(what: str, host: Host, other: Host, by: Host, logs: Sequence[Host]) -> None:
    """Change something once on its way from a host to another; of a frame a log has to name the edge.

    Args:
        what: What is changed, as `between.py` has it.
        host: Where it comes from.
        other: Where it goes.
        by: The host that stands between them.
        logs: Hosts whose logs may say it.
    """
    notice = NOTICED.get(what)
    before = said(logs, notice) if notice else 0
    with between(what, host, other, by) as changed:
        host.divert(other, by)
        try:
            found = changed(CHANGE_LIMIT_S)
            if not found:
                raise Undone(f"nothing to change went from {host.name} to {other.name} within {CHANGE_LIMIT_S:.0f} s")
            if notice is not None:
                _until(lambda: said(logs, notice) > before, f"no log names the edge of the changed {what}: {found}")
        finally:
            host.mend(other)


def open_ports(host: Host) -> list[int]:
    """Return the ports of a host that others can reach."""
    assert host.first is not None, "it is up"
    return sorted({
        socket.local[1]
        for socket in sockets(host.first)
        if socket.state == LISTENING and not socket.local[0].is_loopback
    })  # fmt: skip


def said(hosts: Sequence[Host], pattern: re.Pattern[str]) -> int:
    """Count a message in the logs on hosts: the job's, and those of Spark's executors."""
    logs = [file for host in hosts for name in ("job.log", "stderr") for file in host.home.rglob(name)]
    return sum(len(pattern.findall(file.read_text(errors="replace"))) for file in logs)


@contextmanager
def between(what: str, host: Host, other: Host, by: Host) -> Iterator[Callable[[float], str]]:
    """Have somebody on a host who passes on what comes; yields a function that waits for what was changed."""
    ends = [f"{end.address}={end.hardware}" for end in (host, other)]
    with subprocess.Popen(
        inside(by, "between.py", what, *ends), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018
        output = process.stdout
        if output.readline() != "ready\n":
            raise Undone(f"nobody can stand between hosts on {by.name}")

        def changed(limit_s: float) -> str:
            return output.readline().strip() if select.select([output], [], [], limit_s)[0] else ""

        try:
            yield changed
        finally:
            process.stdin.close()


def inside(host: Host, program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program of this folder in the network of a host."""
    assert host.first is not None, "it is up"
    enter = ["nsenter", "--target", str(host.first.pid), "--net", "env", f"PYTHONPATH={FOLDER.parent}"]
    return [*enter, sys.executable, str(FOLDER / program), *arguments]


def _until(reached: Callable[[], bool], failed: str) -> None:
    deadline = time.monotonic() + SAID_LIMIT_S
    while not reached():
        if time.monotonic() > deadline:
            raise Undone(failed)
        time.sleep(0.5)

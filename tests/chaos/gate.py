"""The S3 server as the job sees it: what fails for a while, and steps of a snapshot or a recovery that can be hit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from faulty_proxy import Fault, FaultyProxy

SLOW_S = 0.4
WEATHERS: dict[str, tuple[Fault, ...]] = {
    "500": (Fault(status=500),),
    "503": (Fault(status=503, code="SlowDown"),),
    "slow": (Fault(pause_s=SLOW_S),),
    "cut": (Fault(closed=True), Fault(cut=True)),
    "applied": (Fault(status=500, applied=True), Fault(closed=True, applied=True)),
}
"""The faults of requests, in turn; every third one has none."""
PARTS, MANIFESTS = "/parts/", "/manifests/"


@dataclass
class Trap:
    """Waits for the nth request of a kind; acts while it is held, before or after the server has applied it."""

    matches: Callable[[str], bool]
    act: Callable[[], object]
    nth: int = 1
    applied: bool = False
    sprung: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def springs_at_answer(self, body: bytes) -> bytes:
        self.spring()
        return body

    def spring(self) -> None:
        try:
            self.act()
        except BaseException as error:  # noqa: BLE001 - it is raised where the trap is waited for
            self.error = error
        finally:
            self.sprung.set()


class Gate(FaultyProxy):
    """A proxy before the server; see the module."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._trap: Trap | None = None
        self._weather: tuple[Fault, ...] = ()
        self._until = 0.0
        self._count = 0

    def set(self, trap: Trap) -> Trap:
        """Wait for a step; one trap at a time."""
        with self.lock:
            self._trap = trap
        return trap

    def unset(self) -> None:
        with self.lock:
            self._trap = None

    def weather(self, kind: str, lasts_s: float) -> None:
        """Let two of three requests fail, or be slow, for so long."""
        with self.lock:
            self._weather, self._until, self._count = WEATHERS[kind], time.monotonic() + lasts_s, 0

    def take(self, request: str) -> Fault | None:
        """The fault of a request that comes now; a trap that it springs is done with when this returns."""
        trap, fault = self._met(request)
        if trap is None:
            return fault
        if not trap.applied:
            trap.spring()
            return fault
        return Fault(edit=trap.springs_at_answer)

    def _met(self, request: str) -> tuple[Trap | None, Fault | None]:
        with self.lock:
            trap = self._trap
            if trap is not None and trap.matches(request):
                trap.nth -= 1
                if trap.nth <= 0:
                    self._trap = None
                    return trap, None
            if time.monotonic() >= self._until:
                return None, None
            self._count += 1
            turn, rest = divmod(self._count, 3)
            if rest == 0:
                return None, None
            # The body of an answer to a write is empty, so there is nothing to cut off.
            fault = self._weather[(turn + rest) % len(self._weather)]
            return None, Fault(closed=True) if fault.cut and not request.startswith("GET") else fault

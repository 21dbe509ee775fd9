"""Display of the running demo: on a terminal one line that is overwritten, else a line now and then."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

PLAIN_EVERY_S = 3.0


class Show:
    """Writes to standard output."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=False, soft_wrap=True)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._said_at = 0.0

    def say(self, what: str) -> None:
        """Write a line that stays."""
        self.hide()
        self.console.print(what)
        sys.stdout.flush()

    def step(self, what: str) -> None:
        """Write a line that stays, with the time since the start."""
        self.say(f"\n{time.monotonic() - self._began:5.1f} s  {what}")

    def progress(self, what: str) -> None:
        """Overwrite the previous line; without a terminal, write one every few seconds."""
        now = time.monotonic()
        line = f"{now - self._began:5.1f} s  {what}"
        if not self.console.is_terminal:
            if now - self._said_at >= PLAIN_EVERY_S:
                self._said_at = now
                self.say(line)
            return
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(line, style="cyan"), refresh=True)

    def hide(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

"""The console output of a run."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lowtide.jobs.figures import Figures, headline
from lowtide.process.launcher import start_time
from lowtide.status.job_view import JobView


class Progress:
    """Lines on standard error, and on a terminal one more that changes each second.

    It keeps its own descriptor: standard error may lead into the log meanwhile.
    """

    def __init__(self) -> None:
        self._console = Console(file=os.fdopen(os.dup(2), "w", buffering=1), highlight=False, markup=False)
        self._live: Live | None = None
        self.live: bool = self._console.is_terminal
        """True if figures are shown."""

    def say(self, what: str) -> None:
        """Print a line with the time since the program's start; a closed reader does not stop the job."""
        self.hide()
        with suppress(OSError):
            self._console.print(f"{age_s():6.1f} s  {what}", soft_wrap=True)

    def figures(self, figures: Figures | JobView) -> None:
        """Show the figures in the place of those before."""
        shown = headline(figures) if isinstance(figures, JobView) else str(figures)
        with suppress(OSError):
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(Text(f"{age_s():6.1f} s  {shown}"), refresh=True)

    def hide(self) -> None:
        """Take the figures away."""
        live, self._live = self._live, None
        if live is not None:
            with suppress(OSError):
                live.stop()


def age_s() -> float:
    """Return how long this process has run, in seconds; imports count."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_time(os.getpid()) / os.sysconf("SC_CLK_TCK")

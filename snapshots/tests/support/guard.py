"""Servers of tests end with the process that started them, however that ends."""

from __future__ import annotations

import subprocess


class Guard:
    """Runs a command once this process is gone, unless `close` is called before.

    Args:
        command: Ends what was started; its output goes nowhere.
    """

    def __init__(self, *command: str) -> None:
        self._shell = subprocess.Popen(
            ["sh", "-c", 'cat; exec "$@"', "sh", *command],
            # Nothing is written: its end is the news, and forks of this process have it, too.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def close(self) -> None:
        """Forget it: what was started has been ended."""
        self._shell.kill()
        self._shell.communicate()

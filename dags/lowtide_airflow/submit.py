"""Who runs a job's driver program: a small contract, with a supervisor on this host or a cluster behind it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread, Timer
from typing import IO, Any, Protocol

from lowtide_airflow.errors import SubmitFailed

__all__ = ["Said", "Start", "Submit", "Supervised", "call"]

Said = Callable[[str], object]

LIMIT_S = 300.0
"""How long a command that submits may take; `lowtide run --detach` returns when the job is ready."""
MOST_SAID = 4_000


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started, and where it begins.

    Attributes:
        flow: flow.py, or flow.py:name, where the program runs.
        conf: the conf file; empty for none.
        settings: keys of the conf that are set besides; an empty text leaves a key alone.
        commit: begin from this commit and no other, by its id or name.
        time: begin from the newest commit that ends at or before this, ISO.
        no_state: begin without state, though there are commits.
        redeliver: deliver everything from there on again, as a new output generation.
    """

    flow: str
    conf: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    commit: str | None = None
    time: str | None = None
    no_state: bool = False
    redeliver: bool = False

    @property
    def chosen(self) -> bool:
        """Whether it begins elsewhere than `lowtide run` does."""
        return self.commit is not None or self.time is not None or self.redeliver

    def options(self) -> list[str]:
        """Where it begins, as options of `lowtide recover`; of `lowtide run` where nothing is chosen."""
        return [
            *(["--commit", self.commit] if self.commit is not None else []),
            *(["--time", self.time] if self.time is not None else []),
            *(["--allow-no-state"] if self.no_state else []),
            *(["--redeliver"] if self.redeliver else []),
        ]

    def conf_options(self, key: str | None = None) -> list[str]:
        """The conf, its settings and the submission's key, as options."""
        given = {name: value for name, value in self.settings.items() if value not in ("", None)}
        if key is not None:
            given["job.submission"] = key
        settings = [text for name, value in given.items() for text in ("--set", f"{name}={_written(value)}")]
        return [*(["--conf", self.conf] if self.conf else []), *settings]


class Submit(Protocol):
    """Starts driver programs. The program outlives whoever submitted it, and Airflow's worker."""

    def submit(self, start: Start, key: str, say: Said) -> None:
        """Start a job's program under a key; returns when it runs, or when a cluster has taken it.

        Args:
            start: what, and from where.
            key: of the submission; see `lowtide_airflow.submission`.
            say: told what the command says.

        Raises:
            SubmitFailed: it refused or failed.
        """
        ...

    def preview(self, start: Start, say: Said) -> dict[str, Any] | None:
        """Say what a job would begin with, if that can be said; nothing is started (errors: SubmitFailed)."""
        ...


@dataclass(frozen=True, slots=True)
class Supervised:
    """Runs the job on this host under `lowtide`'s own supervisor, which has a session of its own.

    Attributes:
        command: `lowtide`.
        folder: its working directory; empty for this process's.
        limit_s: how long it may take until the job is ready.
    """

    command: str = "lowtide"
    folder: str = ""
    limit_s: float = LIMIT_S

    def submit(self, start: Start, key: str, say: Said) -> None:
        """See `Submit.submit`; returns when the job is ready."""
        call(self.arguments(start, key), self.folder, self.limit_s, say)

    def arguments(self, start: Start, key: str) -> list[str]:
        """The command line."""
        named = ["recover" if start.chosen else "run", start.flow]
        return [self.command, *named, "--detach", "--json", *start.options(), *start.conf_options(key)]

    def preview(self, start: Start, say: Said) -> dict[str, Any] | None:
        """See `Submit.preview`: what `lowtide recover --dry-run --json` says."""
        arguments = [self.command, "recover", start.flow, "--dry-run", "--json", *start.options()]
        said = call([*arguments, *start.conf_options()], self.folder, self.limit_s, say)
        found: dict[str, Any] = json.loads(said)
        return found


def call(arguments: list[str], folder: str, limit_s: float, say: Said) -> str:
    """Call a command that returns, and give back its output.

    The command is in this process's group: whoever ends that ends the command as well, but no job, as a supervisor and
    a cluster have sessions of their own.

    Args:
        arguments: the command line.
        folder: the working directory; empty for this process's.
        limit_s: after which the command is killed.
        say: told the command line, and what is said on standard error as it is said.

    Raises:
        SubmitFailed: it is not there, took too long, or ended with another code than 0.
    """
    command = " ".join(arguments)
    say(f"$ {command}")
    where = f"{command}, in {folder or Path.cwd()}"
    try:
        child = subprocess.Popen(
            arguments,
            cwd=folder or None,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise SubmitFailed(
            f"{arguments[0]} cannot be called: {error.strerror}",
            where=where,
            way_out="correct the command or the folder in the Airflow connection; it is called on Airflow's worker",
        ) from error
    output, errors, in_time = _heard(child, limit_s, say)
    if not in_time:
        raise SubmitFailed(
            f"it did not return within {limit_s:g} s",
            where=where,
            way_out="see the job's log; a retry finds out whether a life was begun",
        )
    if child.returncode == 0:
        return output
    # What was said before is in the task's log.
    said = (errors.strip() or output.strip())[-MOST_SAID:].rpartition("error: ")[2]
    raise SubmitFailed(
        f"it ended with {child.returncode}: {said}",
        where=where,
        way_out="mend what it names, then submit it again",
        code=child.returncode,
    )


def _heard(child: subprocess.Popen[str], limit_s: float, say: Said) -> tuple[str, str, bool]:
    """Wait for a command's end, and pass on what it says on standard error as it says it.

    Returns:
        Its output, what it said on standard error, and whether it returned in time; else it was killed.
    """
    assert child.stdout is not None
    assert child.stderr is not None
    lines: list[str] = []

    def listen(errors: IO[str]) -> None:
        for line in errors:
            lines.append(line)
            say(line.rstrip("\n"))

    def give_up() -> None:
        late.set()
        child.kill()

    late = Event()
    timer = Timer(limit_s, give_up)
    listener = Thread(target=listen, args=(child.stderr,), name="what a submission says", daemon=True)
    timer.start()
    with child:  # Its end waits for the command, whatever happened.
        try:
            listener.start()
            output = child.stdout.read()
            child.wait()
            listener.join()
        except BaseException:
            child.kill()
            raise
        finally:
            timer.cancel()
    return output, "".join(lines), not late.is_set()


def _environment() -> dict[str, str]:
    """This process's, without what Airflow keeps in it: connections with their passwords are none of the job's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}


def _written(value: object) -> str:
    """A value as `--set` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

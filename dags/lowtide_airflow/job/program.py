"""A job's driver program: what to start, and the launchers that start it on this host or on a cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread, Timer
from typing import IO, Any, Protocol

from lowtide_airflow.errors import SubmitFailed
from lowtide_snapshots.redaction import redacted, without

Log = Callable[[str], object]

LIMIT_S = 300.0
"""Limit on a command that submits; `lowtide run --detach` returns when the job is ready."""
MOST_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Start:
    """A start: the program, and the beginning of its life.

    Attributes:
        flow: flow.py, or flow.py:name, where the program runs.
        conf: the conf file; empty for none.
        settings: keys of the conf to override; an empty text leaves a key alone.
        commit: begin from this commit and no other, by its id or name.
        time: begin from the newest commit that ends at or before this, ISO.
        no_state: begin without state, even if there are commits.
        require_state: refuse a job that has no commit.
        redeliver: deliver everything from there on again, as a new output generation.
        despite_readers: do so though other jobs of the graph read it.
    """

    flow: str
    conf: str = ""
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)
    commit: str | None = None
    time: str | None = None
    no_state: bool = False
    require_state: bool = False
    redeliver: bool = False
    despite_readers: bool = False

    @property
    def chosen(self) -> bool:
        """True if it begins elsewhere than `lowtide run` does."""
        return self.commit is not None or self.time is not None or self.redeliver

    def plain(self) -> Start:
        """Return the same start from the last good commit."""
        return replace(self, commit=None, time=None, no_state=False, redeliver=False, despite_readers=False)

    def options(self) -> list[str]:
        """Return where it begins, as options of `lowtide recover`; of `lowtide run` if nothing is chosen."""
        return [
            *(["--commit", self.commit] if self.commit is not None else []),
            *(["--time", self.time] if self.time is not None else []),
            *(["--allow-no-state"] if self.no_state else []),
            *(["--require-state"] if self.require_state else []),
            *(["--redeliver"] if self.redeliver else []),
            *(["--despite-readers"] if self.redeliver and self.despite_readers else []),
        ]

    def conf_options(self, key: str | None = None) -> list[str]:
        """Return the conf, its settings and the submission's key, as options."""
        given = {name: value for name, value in self.settings.items() if value not in ("", None)}
        if key is not None:
            given["job.submission"] = key
        settings = [text for name, value in given.items() for text in ("--set", f"{name}={_written(value)}")]
        return [*(["--conf", self.conf] if self.conf else []), *settings]


class Launcher(Protocol):
    """Starts driver programs. A program outlives its launcher, and Airflow's worker."""

    def submit(self, start: Start, key: str, log: Log) -> None:
        """Start a job's program under a key; returns when it runs, or when a cluster has accepted it.

        Args:
            start: what to start.
            key: the submission's; see `lowtide_airflow.job.submission`.
            log: called with each line of the command's output.

        Raises:
            SubmitFailed: the command refused or failed.
        """
        ...

    def preview(self, start: Start, log: Log) -> dict[str, Any] | None:
        """Return what a job would begin with, None if that is unknown; starts nothing (errors: SubmitFailed)."""
        ...


@dataclass(frozen=True, slots=True)
class Supervised:
    """Runs the job on this host under `lowtide`'s own supervisor, in its own session.

    Attributes:
        command: `lowtide`.
        folder: its working directory; empty for this process's.
        limit_s: how long the job may take to become ready.
    """

    command: str = "lowtide"
    folder: str = ""
    limit_s: float = LIMIT_S

    def submit(self, start: Start, key: str, log: Log) -> None:
        """See `Launcher.submit`; returns when the job is ready."""
        run_command(self.arguments(start, key), self.folder, self.limit_s, log)

    def arguments(self, start: Start, key: str) -> list[str]:
        """Return the command line."""
        named = ["recover" if start.chosen else "run", start.flow]
        return [self.command, *named, "--detach", "--json", *start.options(), *start.conf_options(key)]

    def preview(self, start: Start, log: Log) -> dict[str, Any] | None:
        """See `Launcher.preview`: the output of `lowtide recover --dry-run --json`."""
        arguments = [self.command, "recover", start.flow, "--dry-run", "--json", *start.options()]
        output = run_command([*arguments, *start.conf_options()], self.folder, self.limit_s, log)
        found: dict[str, Any] = json.loads(output)
        return found


def run_command(arguments: list[str], folder: str, limit_s: float, log: Log) -> str:
    """Run a command to its end, and return its output. Nothing that is logged or raised has the value of a secret.

    The command is in this process's group: a signal to the group ends the command too, but no job, as supervisors and
    clusters have sessions of their own.

    Args:
        arguments: the command line.
        folder: the working directory; empty for this process's.
        limit_s: after which the command is killed.
        log: called with the command line, and with each line of standard error as it comes.

    Raises:
        SubmitFailed: it is missing, took too long, or ended with a code other than 0.
    """
    seen, hidden = redacted(arguments)
    command = " ".join(seen)
    log(f"$ {command}")
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
            f"cannot run {arguments[0]}: {error.strerror}",
            where=where,
            way_out="correct the command or the folder in the Airflow connection; it runs on Airflow's worker",
        ) from error
    output, errors, in_time = _finished(child, limit_s, lambda line: log(without(line, hidden)))
    if not in_time:
        raise SubmitFailed(
            f"it did not return within {limit_s:g} s",
            where=where,
            way_out="see the job's log; a retry finds out whether a life was begun",
        )
    if child.returncode == 0:
        return output
    # The lines before the last error are in the task's log.
    message = (errors.strip() or output.strip())[-MOST_CHARS:].rpartition("error: ")[2]
    raise SubmitFailed(
        f"it ended with {child.returncode}: {without(message, hidden)}",
        where=where,
        way_out="fix what it names, then submit it again",
        code=child.returncode,
    )


def _finished(child: subprocess.Popen[str], limit_s: float, log: Log) -> tuple[str, str, bool]:
    """Wait for a command's end, and log each line of standard error as it comes.

    Returns:
        Its standard output, its standard error, and whether it returned in time; otherwise it was killed.
    """
    assert child.stdout is not None
    assert child.stderr is not None
    lines: list[str] = []

    def forward(errors: IO[str]) -> None:
        for line in errors:
            lines.append(line)
            log(line.rstrip("\n"))

    def give_up() -> None:
        late.set()
        child.kill()

    late = Event()
    timer = Timer(limit_s, give_up)
    forwarder = Thread(target=forward, args=(child.stderr,), name="output of a submission", daemon=True)
    timer.start()
    with child:  # Its end waits for the command, whatever happened.
        try:
            forwarder.start()
            output = child.stdout.read()
            child.wait()
            forwarder.join()
        except BaseException:
            child.kill()
            raise
        finally:
            timer.cancel()
    return output, "".join(lines), not late.is_set()


def _environment() -> dict[str, str]:
    """This process's environment without Airflow's variables: connections and their passwords do not reach the job."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}


def _written(value: object) -> str:
    """A value as `--set` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

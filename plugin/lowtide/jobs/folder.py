"""A job's folder: its published state, and the lock that admits one program at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from lowtide.errors import AlreadyRunning, ConfError, NotRunning
from lowtide.jobs.state import JobState, read_state, write_state


class JobFolder:
    """The folder of one job, `<[job].folder>/<name>`.

    Attributes:
        name: The job's name.
        path: The folder.
        state_file: The state of its life, see `JobState`.
        secret_file: The secret of its service, in hexadecimal, for its owner alone; there while it runs.
        token_file: The token of its control API, for the owner alone.
        page_file: Leads a browser to the job's page with the token, for the owner alone; made on request.
        certificate_file: The certificate of its control API, in PEM, for everybody; there while it runs.
        lock_file: Locked by the processes of a life.
        log_file: What Spark, the workers and, if it is detached, the job itself have said.
    """

    def __init__(self, root: Path, name: str) -> None:
        """Name the folder; nothing is made."""
        self.name = name
        self.path = root.absolute() / _as_folder(name)
        self.state_file = self.path / "state.json"
        self.secret_file = self.path / "secret"
        self.token_file = self.path / "token"
        self.page_file = self.path / "page.html"
        self.certificate_file = self.path / "control.pem"
        self.lock_file = self.path / "lock"
        self.log_file = self.path / "job.log"

    @classmethod
    def existing(cls, root: Path) -> list[JobFolder]:
        """Return the folders of all jobs that ever ran, by name."""
        files = sorted(root.glob("*/state.json"))
        return [cls(root, unquote(file.parent.name)) for file in files]

    @classmethod
    def find(cls, root: Path, name: str) -> JobFolder:
        """Return the folder of a job that ran or runs.

        Raises:
            NotRunning: there is no such job; the text names those that exist.
        """
        folder = cls(root, name)
        if not folder.state_file.exists():
            known = ", ".join(job.name for job in cls.existing(root))
            raise NotRunning(
                f'there is no job "{name}"',
                where=f"{root} ([job].folder)",
                way_out=f"there are: {known}" if known else "start one: lowtide run flow.py --detach",
            )
        return folder

    def make(self) -> None:
        """Make the folder, invisible to git.

        Raises:
            ConfError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as error:
            raise ConfError(
                f"cannot create the job's folder: {error.strerror}",
                where=str(self.path),
                way_out="set another: [job].folder in the conf",
            ) from error

    def lock(self) -> int:
        """Take the job for one life; the lock goes when all processes that hold the descriptor have ended.

        Raises:
            AlreadyRunning: it is taken; the text names the holder.
        """
        self.make()
        descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise self._taken() from error
        return descriptor

    def _taken(self) -> AlreadyRunning:
        state = self.state()
        runner = state.runner or state.supervisor if state else None
        return AlreadyRunning(
            f'job "{self.name}" runs already' + (f", as process {runner.pid}" if runner else ""),
            where=str(self.path),
            way_out=f"stop it: lowtide stop {self.name}; or give this one another name, or another [job].folder",
        )

    def state(self) -> JobState | None:
        """Return what is written down of the job; None if it never ran."""
        return read_state(self.state_file)

    def write(self, state: JobState) -> None:
        """Write the job's state; only the process that runs it may."""
        write_state(self.state_file, state)

    def forget(self) -> None:
        """Delete the folder.

        Raises:
            AlreadyRunning: the job runs, or has left processes behind.
        """
        lock = self.lock()
        try:
            shutil.rmtree(self.path)
        finally:
            os.close(lock)

    def keep_secret(self, secret: bytes) -> None:
        """Write down the service's secret, readable for the owner alone from the start."""
        _write_for_owner(self.secret_file, secret.hex())

    def secret(self) -> bytes | None:
        """Return the secret; None if the job does not run, or is another user's."""
        try:
            return bytes.fromhex(self.secret_file.read_text())
        except (OSError, ValueError):
            return None

    def forget_secret(self) -> None:
        """Delete the secret, the token, what leads to the page, and the certificate: the service has gone."""
        for file in (self.secret_file, self.token_file, self.page_file, self.certificate_file):
            file.unlink(missing_ok=True)

    def keep_token(self, token: str) -> None:
        """Write down the control API's token, readable for the owner alone from the start."""
        _write_for_owner(self.token_file, token)
        self.page_file.unlink(missing_ok=True)

    def keep_page(self, text: str) -> Path:
        """Write down what leads a browser to the page, readable for the owner alone from the start; return the file."""
        _write_for_owner(self.page_file, text)
        return self.page_file

    def keep_certificate(self, pem: str) -> None:
        """Write down what the control API shows, for other programs to know it by."""
        self.certificate_file.write_text(pem)

    def token(self) -> str | None:
        """Return the control API's token; None if the job does not run, or is another user's."""
        try:
            return self.token_file.read_text() or None
        except (OSError, ValueError):
            return None


def _write_for_owner(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)


def states(root: Path) -> Iterator[tuple[JobFolder, JobState]]:
    """Yield all jobs of a folder with what is known of them now."""
    for folder in JobFolder.existing(root):
        state = folder.state()
        if state is not None:
            yield folder, state.seen()


def _as_folder(name: str) -> str:
    quoted = quote(name, safe=" ")
    return quoted if not quoted.startswith(".") else f"%2E{quoted[1:]}"

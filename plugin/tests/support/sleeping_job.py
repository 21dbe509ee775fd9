"""A job in a folder whose program only sleeps, and whose control API is a test's."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from controlled import TOKEN, ControlledJob

from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState
from lowtide.process.identity import Process


@contextmanager
def sleeping(root: Path, job: ControlledJob) -> Iterator[subprocess.Popen[bytes]]:
    """A process that a job's folder says runs it; the control API is the test's."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        folder = JobFolder(root, "index")
        folder.make()
        folder.keep_token(TOKEN)
        runner, began = Process.of(process.pid), datetime.now(UTC)
        state = JobState(
            name="index",
            life=uuid.uuid4().hex,
            phase="running",
            started_at=began,
            runner=runner,
            incarnation=job.at.incarnation,
        )
        folder.write(msgspec.structs.replace(state, **job.at.fields()))
        yield process
    finally:
        process.kill()
        process.wait()

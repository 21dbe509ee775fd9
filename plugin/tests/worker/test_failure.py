"""A cause on its way through the JVM: passed on as it came, and shown as Python shows it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from hanging import HANGS_S

from lowtide.jars.java import find_java
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import pyspark_folder
from lowtide_snapshots.cause import Cause

SOURCE = Path(__file__).parents[1] / "support" / "jvm" / "FailureFromStdin.java"
CAUSES = [
    Cause(
        "flow", 'step "up": raised ValueError: größer', "flow.py:3, record at in-0", "correct it", "Traceback\n  …\n"
    ),
    Cause("interpreter", "executor 1 on there has a different Python", way_out="set PYSPARK_PYTHON"),
    Cause("loss", "worker 1/0 died"),
]


@pytest.mark.slow
def test_java_tells_a_cause_on_as_it_came_and_shows_the_same_text(tmp_path: Path) -> None:
    path = os.pathsep.join([str(shim_jar()), f"{pyspark_folder() / 'jars'}/*"])
    java = find_java().executable.resolve()
    subprocess.run([java.with_name("javac"), "-cp", path, "-d", tmp_path, SOURCE], check=True, timeout=HANGS_S)
    options = ["-XX:TieredStopAtLevel=1", "-Dstdout.encoding=UTF-8", "-cp", os.pathsep.join([str(tmp_path), path])]
    given = b"".join(msgspec.json.encode(cause) + b"\n" for cause in CAUSES)
    done = subprocess.run(
        [java, *options, "io.lowtide.FailureFromStdin"], input=given, capture_output=True, check=True, timeout=HANGS_S
    )
    reported = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    expected = [
        *CAUSES,
        Cause("loss", "java.lang.IllegalStateException: it broke"),
        Cause("flow", "worker 1/0 could not be forked: no", way_out="mend it"),
        Cause("loss", "worker 1/0 could not be forked: it is gone"),
    ]
    assert [msgspec.convert(each["cause"], Cause) for each in reported] == expected
    assert [each["text"] for each in reported] == [str(cause) for cause in expected]

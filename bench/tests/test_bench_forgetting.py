"""Memory stands still while keys come once and never again: counted in the worker's own process, by what it has."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from lowtide_bench.forgetting import LOOKS, STEPS

KEYS = 300_000
MOST_MB = 30
"""Found are 10 to 20; not forgotten, the keys take 43 to 71."""


@pytest.fixture(name="result", scope="module")
def _result() -> Any:
    command = [sys.executable, "-m", "lowtide.cli", "bench", "forgetting", "--json", "--keys", str(KEYS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("step", STEPS)
def test_keys_that_come_once_do_not_stay_in_memory(result: Any, step: str) -> None:
    found = result["steps"][step]
    assert len(found["rss_mb"]) == LOOKS
    assert found["grown_mb"] < MOST_MB, found


def test_every_key_goes_through(result: Any) -> None:
    """The last window is still open."""
    delivered = {step: found["delivered"] for step, found in result["steps"].items()}
    assert delivered["scan"] == delivered["deduplicate"] == KEYS
    assert KEYS - 50_000 - 1_000 <= delivered["windows"] < KEYS

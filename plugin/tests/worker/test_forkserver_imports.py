"""What a fork server imports before it forks: a worker imports nothing more with its first records."""

from __future__ import annotations

import json
import subprocess
import sys

from hanging import HANGS_S

FIRST_RECORDS = """
import json, sys
from lowtide.worker.forkserver import _import_all

_import_all("")
before = set(sys.modules)
import pyarrow

pyarrow.array([1, None])
pyarrow.array([{"word": "a", "count": 1}], pyarrow.struct([("word", pyarrow.string()), ("count", pyarrow.int64())]))
pyarrow.record_batch({"raw": [b"a"]}).column("raw").to_pylist()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_first_records_of_a_worker_import_nothing() -> None:
    found = subprocess.run([sys.executable, "-c", FIRST_RECORDS], check=True, capture_output=True, timeout=HANGS_S)
    assert json.loads(found.stdout.splitlines()[-1]) == []

"""Compares a stopped job's output with that of `run_locally`'s interpreter: `judge.py LANES`; prints JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from demo.comparing import compare_job
from flow import flow

from lowtide.conf import Conf

CONF = Path(os.environ.get("CONF", "/home/lowtide/cluster.toml"))

if __name__ == "__main__":
    verdict, delivered = compare_job(flow, Conf.load(CONF, {"job.lanes": int(sys.argv[1])}), "counted")
    print(json.dumps(asdict(verdict) | {"delivered": sum(map(len, delivered.values()))}))

"""The layout that this program would run with as the leader, as it stands beside the lease."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lowtide.conf import Conf
from lowtide.driver.placement import text_of
from lowtide.driver.session import master_of
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.job.layout import Layout

SETTINGS = ("slack_ms", "grouping", "delivery", "allowed_skew_ms", "max_future_ms")
"""The keys of `[job]` that answers or promises depend on, beside `early_keys`, which the plan has.

Limits and folders may differ from machine to machine."""


def layout_of(plan: Plan, conf: Conf) -> Layout:
    """Return what a program runs with this plan and conf, and how it is laid out."""
    settings = {f"job.{name}": str(getattr(conf.job, name)) for name in SETTINGS}
    settings["job.early_keys"] = str(plan.early_keys)
    # A parameter may be a secret: ZooKeeper has its mark alone.
    settings |= {f"job.parameters.{name}": _mark(str(value)) for name, value in conf.job.parameters.items()}
    return Layout(
        flow=flow_text(plan),
        levels=plan.levels,
        parallelism=plan.parallelism,
        lanes=plan.lanes,
        processes=conf.worker.processes,
        master=master_of(conf),
        settings=settings,
    )


def flow_text(plan: Plan) -> str:
    """Return a SHA-256 in hexadecimal of a flow's steps and of the text of its files, wherever these lie."""
    files = {Path(vertex.site.file) for vertex in plan.vertices}
    texts = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file())
    return hashlib.sha256(" ".join([text_of(plan), *texts]).encode()).hexdigest()


def _mark(value: str) -> str:
    return "sha256:" + hashlib.sha256(value.encode()).hexdigest()[:12]

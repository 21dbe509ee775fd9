"""The traces of a job: what `[traces]` in conf means for its workers."""

from __future__ import annotations

from lowtide.assignment.deployment import TracesSetting
from lowtide.conf import Conf
from lowtide.worker.exporting import need_library


def traces_of(conf: Conf) -> TracesSetting | None:
    """Return where spans go; None if nothing is traced.

    Raises:
        ConfError: the library is missing.
    """
    traces = conf.traces
    if traces.endpoint is None or not traces.ratio:
        return None
    need_library()
    return TracesSetting(f"{traces.endpoint.rstrip('/')}/v1/traces", traces.ratio)

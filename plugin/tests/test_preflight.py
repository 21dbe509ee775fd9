"""What is refused before a job starts."""

from __future__ import annotations

import pytest
from state_flows import across_levels, diamond, index

from lowtide import Flow
from lowtide.compiler import compile_flow
from lowtide.errors import FlowError
from lowtide.spark.preflight import refuse_tracked


def test_steps_that_need_min_time_are_refused_by_name() -> None:
    flow = Flow("index")
    index(flow)
    with pytest.raises(FlowError, match=r'last "versions", scan "index"') as caught:
        refuse_tracked(compile_flow(flow, parallelism=1))
    assert "run_locally" in caught.value.way_out


@pytest.mark.parametrize("build", [diamond, across_levels])
def test_merges_with_state_behind_them_are_refused_too(build: object) -> None:
    flow = Flow("merged")
    build(flow)  # type: ignore[operator]
    with pytest.raises(FlowError, match="does not track min time"):
        refuse_tracked(compile_flow(flow, parallelism=1))

"""Changes of a flow that its state survives."""

import pyarrow as pa
import pytest

from lowtide_snapshots.format.fingerprint import Difference, compare
from lowtide_snapshots.format.manifest import StateSetting, VertexShape, shape_of

KEY = pa.struct([("word", pa.string())])
VISIT = pa.struct([("at", pa.int64()), ("page", pa.string())])


def of(state: pa.DataType, kind: str = "scan", key: pa.StructType = KEY) -> VertexShape:
    return shape_of("index", kind, key, state)


def struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


def test_the_same_flow_differs_in_nothing() -> None:
    state = struct(pages=pa.int64(), visits=pa.list_(VISIT), by=pa.map_(pa.string(), VISIT))
    turned = pa.struct([state.field(number) for number in (2, 0, 1)])
    assert compare([of(state)], [of(state)], {}) == []
    assert compare([of(state)], [of(turned)], {}) == []


def test_steps_that_come_and_go() -> None:
    one, other = of(pa.int64()), shape_of("totals", "broadcast", None, pa.int64())
    assert compare([one], [one, other], {}) == [
        Difference("totals", 'step "totals" is new and starts without state', False)
    ]
    assert compare([other, one], [one], {}) == [
        Difference("totals", 'step "totals" is gone, and its state would be dropped', True)
    ]


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        (struct(n=pa.int64()), struct(n=pa.int64(), pages=pa.int64()), "pages"),
        (struct(n=struct(a=pa.int8())), struct(n=struct(a=pa.int8(), pages=pa.int64())), "n.pages"),
        (pa.list_(struct(a=pa.int8())), pa.list_(struct(a=pa.int8(), pages=pa.int64())), "[].pages"),
        (
            struct(n=pa.map_(pa.string(), struct(a=pa.int8()))),
            struct(n=pa.map_(pa.string(), struct(a=pa.int8(), pages=pa.int64()))),
            "n{}.pages",
        ),
    ],
)
def test_a_new_field_needs_a_default(before: pa.DataType, after: pa.DataType, path: str, default: bool) -> None:
    (found,) = compare([of(before)], [of(after)], {"index": {path}} if default else {"other": {path}})
    end = "starts with its default" if default else "has no default"
    assert found.what.startswith(f'state of "index": field {path} (int64) is new and') or default
    assert (found.vertex, found.what.endswith(end), found.fatal) == ("index", True, not default)


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (of(pa.int32()), of(pa.int64()), 'state of "index": it is int64, but was int32'),
        (of(struct(n=pa.int64())), of(struct(n=pa.string())), 'state of "index": field n is string, but was int64'),
        (of(struct(n=pa.int64(), m=pa.int8())), of(struct(m=pa.int8())), 'state of "index": field n (int64) is gone'),
        (
            of(pa.map_(pa.string(), pa.int8())),
            of(pa.map_(pa.int8(), pa.int8())),
            'state of "index": it is map<int8, int8>, but was map<string, int8>',
        ),
        (of(pa.int8()), of(pa.int8(), kind="last"), 'step "index" keeps last state, but kept scan'),
        (
            of(pa.int8()),
            of(pa.int8(), key=struct(word=pa.string(), day=pa.date32())),
            'the key of "index" is word (string), day (date32[day]), but was word (string)',
        ),
    ],
)
def test_what_would_misread_state_is_fatal(before: VertexShape, after: VertexShape, what: str) -> None:
    assert compare([before], [after], {"index": {"n", "m"}}) == [Difference("index", what, True)]


def test_a_vertex_whose_state_hangs_on_another_setting_is_another() -> None:
    key, state = KEY, pa.int64()
    five, ten, none = (
        shape_of("index", "window", key, state, StateSetting(text))
        for text in ("tumbling(5 min)", "tumbling(10 min)", "")
    )
    assert compare([five], [five], {}) == []
    (found,) = compare([five], [ten], {})
    assert found.what == 'step "index" is tumbling(10 min), but was tumbling(5 min): give it another name'
    assert found.fatal
    assert compare([five], [none], {})[0].fatal

"""The parameters of a call's function, and fakes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import pytest

from lowtide.calls.setting import CallSetting
from lowtide.errors import FlowError
from lowtide.flow.steps.steps import passes_keys


class Service:
    async def __call__(self, record: int) -> int:
        return record

    async def ask(self, record: int, key: str) -> int:
        return record


async def asynchronous(record: int) -> int:
    return record


def several(*records: int) -> int:
    return records[0]


@pytest.mark.parametrize(
    ("function", "resource", "keyed"),
    [
        (lambda record: 1, False, False),
        (lambda record, key: 1, False, True),
        (lambda records, keys: 1, False, True),
        (lambda record, http: 1, True, False),
        (lambda record, http, key: 1, True, True),
        (lambda record, key: 1, True, False),
        (lambda record, limit=3: 1, False, False),
        (lambda record, *rest: 1, True, False),
        (Service().ask, False, True),
        (Service(), False, False),
        (partial(several, 1), False, False),
        (print, False, False),
    ],
)
def test_a_parameter_named_key_after_the_record_and_the_resource_takes_the_key(
    function: Callable[..., Any], resource: bool, keyed: bool
) -> None:
    assert passes_keys(function, resource=resource) is keyed


@pytest.mark.parametrize(
    ("function", "resource", "takes"),
    [
        (lambda: 1, False, "()"),
        (lambda record, http: 1, False, "(record, http)"),
        (lambda record: 1, True, "(record)"),
        (lambda record, http, more: 1, True, "(record, http, more)"),
        (lambda record, *, http: 1, False, "(record, http)"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(function: Callable[..., Any], resource: bool, takes: str) -> None:
    with pytest.raises(FlowError) as refused:
        passes_keys(function, resource=resource)
    assert takes in refused.value.what


def test_a_function_is_asynchronous_by_its_definition() -> None:
    def is_async(function: Callable[..., Any]) -> bool:
        return CallSetting("a", function, int, int, 1, 1.0).is_async

    assert [is_async(each) for each in (asynchronous, Service(), Service().ask, partial(asynchronous, 1))] == [True] * 4
    assert [is_async(each) for each in (several, print, partial(several, 1))] == [False] * 3


def test_a_fake_takes_a_record_and_no_resource() -> None:
    call = CallSetting("a", asynchronous, int, int, 1, 1.0, resource=list, batch=8, pass_keys=True)
    fake = call.faked(several)
    assert (fake.function, fake.resource, fake.batch, fake.pass_keys) == (several, None, None, False)
    assert call.faked(Service().ask).pass_keys
    assert (call.most_open, fake.most_open) == (8, 1)


def test_a_setting_goes_to_another_process() -> None:
    call = CallSetting("a", lambda record: record + 1, int, int, 1, 1.0)
    assert cloudpickle.loads(cloudpickle.dumps(call)).function(1) == 2

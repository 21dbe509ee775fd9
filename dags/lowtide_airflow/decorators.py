"""`@task.lowtide`: a function that gets a job's client, connected, and the retries of Lowtide's operators.

@task.lowtide(job="orders", lowtide_conn_id="lowtide_default")
def how_late(job: JobClient, ds: str) -> int:
    return job.delivered_ms()
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from lowtide_airflow.operators.base import LowtideOperator
from lowtide_airflow.ui.links import JobLink

__all__ = ["LowtideDecoratedOperator", "lowtide_task"]

CLIENT = "job"
"""The function's parameter for the client."""


class LowtideDecoratedOperator(DecoratedOperator, LowtideOperator):
    """Calls a function with the client of a job, and returns what it returns.

    Args:
        python_callable: the function; its parameter `job` gets the client, others get the task's arguments and, by
            their names, values of Airflow's context.
        op_args, op_kwargs: the arguments of the task.
        job: the job's name.
        lowtide_conn_id: see `LowtideOperator`.
        kwargs: see `DecoratedOperator`.
    """

    template_fields: Sequence[str] = (*DecoratedOperator.template_fields, *LowtideOperator.template_fields)
    shallow_copy_attrs: Sequence[str] = ("python_callable", "_function")
    operator_extra_links = (JobLink(),)
    custom_operator_name = "@task.lowtide"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {name: value for name, value in (op_kwargs or {}).items() if name != CLIENT}
        super().__init__(
            python_callable=_without_client(python_callable), op_args=op_args or [], op_kwargs=given, **kwargs
        )
        self._function = python_callable

    def execute(self, context: Any) -> Any:
        """Call the function."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        with self.client() as client:
            given = {**context, **self.op_kwargs, CLIENT: client}
            return self._function(*self.op_args, **_taken(self._function, len(self.op_args), given))


def lowtide_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a task of a function, as `@task.lowtide`.

    Args:
        python_callable: the function; see `LowtideDecoratedOperator`.
        multiple_outputs: whether each key of the returned dict becomes an XCom of its own.
        kwargs: `job`, `lowtide_conn_id`, and what every task takes.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=LowtideDecoratedOperator,
        **kwargs,
    )


def _without_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Airflow checks it when a DAG file is read: without the argument that the task gets by itself."""
    signature = inspect.signature(function)
    if CLIENT not in signature.parameters:
        raise ValueError(f"@task.lowtide: {function.__name__} has no parameter {CLIENT}, which gets the job's client")

    @functools.wraps(function)
    def checked(*_given: Any, **_named: Any) -> Any:
        raise AssertionError("Airflow calls the operator")

    kept = [each for name, each in signature.parameters.items() if name != CLIENT]
    checked.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return checked


def _taken(function: Callable[..., Any], placed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a function takes by name, beside so many arguments by place."""
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    names = set(given) if takes_all else set(parameters)
    by_place = [name for name in parameters if name != CLIENT][:placed]
    return {name: given[name] for name in names - set(by_place) if name in given}

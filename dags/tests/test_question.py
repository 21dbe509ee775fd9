"""A person's answer where Airflow has no questions: the task fails with the question, and clearing it approves."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def context(try_number: int) -> Any:
    return {"ti": SimpleNamespace(try_number=try_number)}


def test_the_question_is_the_failure_and_the_second_try_is_the_answer() -> None:
    from lowtide_airflow.compat import AirflowFailException
    from lowtide_airflow.operators.question import FailingApprovalOperator

    task = FailingApprovalOperator(
        task_id="ask", subject="Start it again?", body="It died.", response_timeout=1, defaults="Reject", retries=5
    )
    assert task.retries == 0, "a retry would be an answer that nobody gave"
    with pytest.raises(AirflowFailException, match=r"Start it again\?\nIt died.\nTo approve, clear the task ask"):
        task.execute(context(1))
    task.execute(context(2))


def test_airflows_own_question_is_asked_where_there_is_one() -> None:
    from lowtide_airflow.compat import has_pages
    from lowtide_airflow.operators.question import ApprovalOperator, FailingApprovalOperator

    # An Airflow has both or none.
    asked: object = ApprovalOperator
    assert (asked is FailingApprovalOperator) is not has_pages()


def test_a_question_is_open_for_as_long_as_was_asked() -> None:
    from lowtide_airflow.operators.question import ApprovalOperator, FailingApprovalOperator

    days = timedelta(days=3)
    task: Any = ApprovalOperator(
        task_id="ask", subject="Start it again?", body="", response_timeout=days, defaults="Reject"
    )
    if not isinstance(task, FailingApprovalOperator):
        assert getattr(task, "response_timeout", task.execution_timeout) == days

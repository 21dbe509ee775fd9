"""The operator that asks a person, in every Airflow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from lowtide_airflow.compat import AirflowException, AirflowFailException

__all__ = ["ApprovalOperator"]


class FailingApprovalOperator(BaseOperator):
    """Asks a person where Airflow has no *Required actions*: it fails with the question; who clears the task approves.

    The task's callbacks and the DAG's are called with the failure, so whoever gets those is asked.

    Args:
        subject: the question.
        body: what one has to know, Markdown.
        kwargs: see `BaseOperator`; what else Airflow's ApprovalOperator takes is left aside.
    """

    template_fields: Sequence[str] = ("subject", "body")

    def __init__(
        self, *, subject: str, body: str, response_timeout: object = None, defaults: object = None, **kwargs: Any
    ) -> None:
        super().__init__(**{**kwargs, "retries": 0})
        self.subject = subject
        self.body = body

    def execute(self, context: Any) -> None:
        """Ask in the first try; the next is the answer."""
        if int(context["ti"].try_number) > 1:
            self.log.info("approved: a person has cleared the task")
            return
        raise AirflowFailException(
            f"{self.subject}\n{self.body}\nTo approve, clear the task {self.task_id} of this run. To reject, leave it."
        )


if TYPE_CHECKING:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
else:
    try:
        from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
    except (ImportError, AirflowException):
        ApprovalOperator = FailingApprovalOperator
    else:
        if "response_timeout" not in signature(HITLOperator.__init__).parameters:
            AirflowsApprovalOperator = ApprovalOperator

            class ApprovalOperator(AirflowsApprovalOperator):
                """Asks a person with an older standard provider, where the time for an answer has another name."""

                def __init__(self, *, response_timeout: timedelta | None = None, **kwargs: Any) -> None:
                    """Take the arguments of a newer one."""
                    super().__init__(**{"execution_timeout": response_timeout, **kwargs})

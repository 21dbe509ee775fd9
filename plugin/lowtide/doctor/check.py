"""One check of the surroundings, its inputs and its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import ServiceStatus, service_status
from lowtide.errors import LowtideError
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.graph import FlowGraph

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The finding of a check.

    Attributes:
        verdict: "ok"; "warn" if a flow may run anyway; "fail" if it will not.
        found: What is there, with the figures.
        way_out: What to do; empty only with "ok".
    """

    verdict: Verdict
    found: str
    way_out: str = ""


@dataclass(frozen=True)
class Surroundings:
    """The surroundings that checks look at; asked for once, used by several.

    Attributes:
        conf: The configuration that a flow would run with.
        flow: The flow that is to run; None checks what every flow needs.
        probe: True if a scratch topic may be made, and deleted again.
    """

    conf: Conf
    flow: FlowGraph | None = None
    probe: bool = False

    @cached_property
    def services(self) -> dict[str, ServiceStatus]:
        """The embedded services, by name."""
        return {service.name: service for service in service_status(Path(self.conf.embedded.folder))}

    @cached_property
    def plan(self) -> Plan | None:
        """The flow's plan; None without a flow (errors: FlowError, if it cannot run as it is written)."""
        if self.flow is None:
            return None
        return compile_job(self.flow, self.conf)

    @cached_property
    def topics(self) -> Topics:
        """The topics of the Kafka that the conf names."""
        return Topics(self.conf.kafka)


@dataclass(frozen=True, slots=True)
class Check:
    """A named question.

    Attributes:
        name: One or two words.
        run: Answers it; a LowtideError that it raises is a "fail".
    """

    name: str
    run: Callable[[Surroundings], Answer]


def ask(check: Check, surroundings: Surroundings) -> Answer:
    """The check's answer; what goes wrong in Lowtide's own words is one."""
    try:
        return check.run(surroundings)
    except LowtideError as error:
        where = f" ({error.where})" if error.where else ""
        return Answer("fail", f"{error.what}{where}", error.way_out)

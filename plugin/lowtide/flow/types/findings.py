"""Findings: the faults of a flow and their places, found without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.errors import FlowError
from lowtide.flow.site import Site


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a flow.

    Attributes:
        site: The call in the flow's file, None if it is the flow as a whole.
        step: The step's name, as far as it has one.
        message: The fault, what was expected, and the way out.
    """

    site: Site | None
    step: str
    message: str

    def __str__(self) -> str:
        where = f"{self.site}: " if self.site is not None else ""
        return f'{where}"{self.step}": {self.message}'


class FlowRefused(FlowError):
    """The flow cannot run as written; correct what `findings` name.

    Attributes:
        findings: All faults found, in the order of the flow's file.
    """

    def __init__(self, flow: str, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        faults = "1 fault" if len(findings) == 1 else f"{len(findings)} faults"
        lines = [f'flow "{flow}" cannot run, {faults}:', *(f"  {finding}" for finding in self.findings)]
        super().__init__("\n".join(lines))

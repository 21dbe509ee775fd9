"""Checks that everything a flow needs is there; each gives its finding and the way out."""

from lowtide.doctor.check import Answer, Check, Surroundings, Verdict, ask
from lowtide.doctor.checks import CHECKS

__all__ = ["CHECKS", "Answer", "Check", "Surroundings", "Verdict", "ask"]

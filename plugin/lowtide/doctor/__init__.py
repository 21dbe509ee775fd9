"""Whether everything is there that a flow needs: a list of small checks, each with what it found and the way out."""

from lowtide.doctor.check import Answer, Check, Surroundings, Verdict, ask
from lowtide.doctor.checks import CHECKS

__all__ = ["CHECKS", "Answer", "Check", "Surroundings", "Verdict", "ask"]

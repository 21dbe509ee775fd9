"""Every rule broken on purpose; a run of the simulation has to catch each of them."""

from __future__ import annotations

from simulation.mutation import Mutation
from simulation.tracking_mutations import TRACKING

MUTATIONS: list[Mutation] = [*TRACKING]

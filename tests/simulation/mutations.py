"""Every rule broken on purpose; a run of the simulation has to catch each of them."""

from __future__ import annotations

from .flow_mutations import FLOW
from .mutation import Mutation
from .tracking_mutations import TRACKING

MUTATIONS: list[Mutation] = [*TRACKING, *FLOW]

"""Every rule broken on purpose; a run of the simulation has to catch each of them."""

from __future__ import annotations

from .commit_mutations import COMMIT
from .due_mutations import DUE
from .flow_mutations import FLOW
from .mutation import Mutation
from .recovery_mutations import RECOVERY
from .tracking_mutations import TRACKING
from .worker_mutations import WORKER

MUTATIONS: list[Mutation] = [*TRACKING, *WORKER, *DUE, *FLOW, *RECOVERY, *COMMIT]

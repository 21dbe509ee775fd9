"""Every rule broken on purpose; a run of the simulation has to catch each of them."""

from __future__ import annotations

from .call_mutations import CALLS
from .carrier_mutations import CARRIERS
from .commit_mutations import COMMIT
from .completing_mutations import COMPLETING
from .cycle_mutations import CYCLE
from .delta_mutations import DELTAS
from .due_mutations import DUE
from .flow_mutations import FLOW
from .join_mutations import JOIN
from .keys_mutations import KEYS
from .mutation import Mutation
from .naming_mutations import NAMING
from .recovery_mutations import RECOVERY
from .relay_mutations import RELAYS
from .shard_mutations import SHARDS
from .substream_mutations import SUBSTREAMS
from .tracking_mutations import TRACKING
from .worker_mutations import WORKER

MUTATIONS: list[Mutation] = [
    *TRACKING, *SHARDS, *RELAYS, *WORKER, *DUE, *JOIN, *SUBSTREAMS, *CYCLE, *KEYS, *NAMING, *FLOW, *CALLS, *COMPLETING,
    *RECOVERY, *COMMIT, *CARRIERS, *DELTAS,
]  # fmt: skip

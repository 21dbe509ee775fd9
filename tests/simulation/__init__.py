"""Deterministic simulation of Lowtide's core: many small worlds, each made from a seed.

    PYTHONPATH=tests python -m simulation --seeds 1000 --steps 500
    PYTHONPATH=tests python -m simulation --seed 17                        # replay one with a readable trace
    PYTHONPATH=tests python -m simulation --seed 17 --mutation prune-early    # with a rule broken on purpose

The core's own classes run: `Tracker`, `LocalTracker`, `WorkerCore` with its fronts, groupings and barriers. Simulated
are the network, the sinks, the log, the clock and whoever restarts things. After every step a model of a few lines
(`simulation.model`) says what min time may be; at a seed's end everything is drained and compared.

* `simulation.protocol`: the tracker alone, on random graphs of segments, with frames that carry nothing but ticks.
* `simulation.shard_world`: the same on a tracker in shards.
* `simulation.flow_world`: compiled flows over several lives, delivered output against `run_log`.
* `simulation.commit_world`: snapshots, commits, recoveries and retention, by several at once, killed anywhere.
* `simulation.carrier_world`: staged records on their way into files, tables and puts, by several carriers.
* `simulation.mutations`: every rule broken on purpose, which has to be caught.
"""

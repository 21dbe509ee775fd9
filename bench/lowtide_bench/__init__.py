"""`lowtide bench`: the latency of a flow, beside the least that any program between two topics needs.

A run has an embedded Kafka, a generator that keeps to its schedule, the system under measurement and a reader; first
comes the bare librdkafka loop, then the flow. `run.measure` does it; `docs/benchmarks/latency.md` explains the figures.
"""

"""`lowtide bench`: what a flow costs in time, beside the least that any program between two topics would cost.

One run: an embedded Kafka, a generator that keeps to its schedule, the system that is measured, a reader; first the
bare librdkafka loop, then the flow. `run.measure` does it, `docs/benchmarks/latency.md` says what the figures mean.
"""

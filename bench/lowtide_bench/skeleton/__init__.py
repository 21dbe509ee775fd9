"""The skeleton: a flow's path through Spark and Kafka without any of Lowtide.

Real-Time Mode's Kafka source, a Python process per source partition, one exchange, one Python process that counts, and
one Kafka transaction per bundle. No labels, no tracker, no barrier: it promises nothing, so its figures beside a flow's
show the cost of the promises. Its Java class and its workers are its own, so it stays the same when Lowtide's own loop
changes.

`system.Skeleton` is the system to measure; it runs `program` (Spark's driver), which runs the `worker`s.
"""

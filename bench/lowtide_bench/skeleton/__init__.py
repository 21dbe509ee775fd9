"""The skeleton: a flow's way through Spark and Kafka with nothing of Lowtide in it.

Real-Time Mode's Kafka source, a Python process per source partition, one exchange, one Python process that counts, and
one Kafka transaction per bundle. No labels, no tracker, no barrier: it promises nothing, so a flow's figures beside its
own show what the promises cost. Its Java class and its workers are its own: whatever becomes of Lowtide's own loop, it
stays as it is.

`system.Skeleton` is what is measured; it runs `program` (Spark's driver), which runs the `worker`s.
"""

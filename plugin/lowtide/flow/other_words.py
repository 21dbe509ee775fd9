"""Words of Spark, Flink, Kafka Streams and Bytewax that have other names here, each with what to write instead."""

from __future__ import annotations

_KEY = 'write key_by("column")'
_EVENT_TIME = 'give event time to the window or join: window(..., time=lt.event_time("at", wait=lt.seconds(1)))'
_WRITE = (
    'write write("name", lt.kafka(topic, lt.json(Type))); lt.postgres, lt.files, lt.delta and lt.puts are sinks, too'
)

OF_STREAMS = {
    "groupBy": _KEY,
    "groupby": _KEY,
    "group_by": _KEY,
    "keyBy": _KEY,
    "key_on": _KEY,
    "partitionBy": _KEY,
    "select": "write map(function): it returns a record of another dataclass",
    "withColumn": "write map(function): it returns a record of another dataclass",
    "withColumnRenamed": "write map(function): it returns a record of another dataclass",
    "mapValues": "write map(function)",
    "flatMap": "write flat_map(function)",
    "where": "write filter(function)",
    "map_async": 'write call("name", function, timeout=lt.seconds(2))',
    "mapAsync": 'write call("name", function, timeout=lt.seconds(2))',
    "unordered_wait": 'write call("name", function, timeout=lt.seconds(2))',
    "ordered_wait": 'write call("name", function, timeout=lt.seconds(2))',
    "union": 'write merge(other, name="both")',
    "unionAll": 'write merge(other, name="both")',
    "unionByName": 'write merge(other, name="both")',
    "branch": "write split(function): it returns two streams",
    "withWatermark": _EVENT_TIME,
    "assign_timestamps_and_watermarks": _EVENT_TIME,
    "dropDuplicates": 'write key_by("id").deduplicate("name", within=lt.hours(1))',
    "dropDuplicatesWithinWatermark": 'write key_by("id").deduplicate("name", within=lt.hours(1))',
    "distinct": 'write key_by("id").deduplicate("name", within=lt.hours(1))',
    "agg": 'write key_by("column").aggregate("name", Result, total=lt.agg.sum("amount"))',
    "count": 'write key_by("column").aggregate("name", Result, n=lt.agg.count())',
    "sum": 'write key_by("column").aggregate("name", Result, total=lt.agg.sum("amount"))',
    "mapGroupsWithState": 'write key_by("column").scan("name", function, initial)',
    "flatMapGroupsWithState": 'write key_by("column").flat_scan("name", function, initial)',
    "applyInPandasWithState": 'write key_by("column").flat_scan("name", function, initial)',
    "transformWithState": 'write key_by("column").flat_scan("name", function, initial)',
    "transformWithStateInPandas": 'write key_by("column").flat_scan("name", function, initial)',
    "process": 'write key_by("column").flat_scan("name", function, initial)',
    "stateful_map": 'write key_by("column").scan("name", function, initial)',
    "fold": 'write key_by("column").scan("name", function, initial)',
    "foreachBatch": _WRITE,
    "foreach": _WRITE,
    "writeStream": _WRITE,
    "sinkTo": _WRITE,
    "sink_to": _WRITE,
    "to": _WRITE,
    "print": "look at what flow.run_locally(...) returns, or read the sink's topic: lowtide topic read NAME",
    "show": "look at what flow.run_locally(...) returns, or read the sink's topic: lowtide topic read NAME",
    "collect": "look at what flow.run_locally(...) returns",
    "toDF": "look at what flow.run_locally(...) returns",
}
"""Words that Stream lacks, each with what to write instead."""

OF_FLOWS = {
    "readStream": 'write flow.read("name", lt.kafka(topic, lt.json(Type)))',
    "from_source": 'write flow.read("name", lt.kafka(topic, lt.json(Type)))',
    "input": 'write flow.read("name", lt.kafka(topic, lt.json(Type)))',
    "run": "give it to lt.main(flow), or start it: lowtide run flow.py",
    "start": "give it to lt.main(flow), or start it: lowtide run flow.py",
    "execute": "give it to lt.main(flow), or start it: lowtide run flow.py",
    "test": "write flow.run_locally(source=[...])",
}
"""Words that Flow lacks."""

OF_AGGREGATES = {
    "avg": "mean",
    "average": "mean",
    "last": "latest",
    "collect_list": "collect",
    "collect_set": "count_distinct",
    "countDistinct": "count_distinct",
    "approx_count_distinct": "count_distinct",
    "argmax": "max_by",
    "argmin": "min_by",
}
"""Words that lt.agg has under another name."""

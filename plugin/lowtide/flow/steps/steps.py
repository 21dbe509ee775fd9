"""All steps of a flow, as frozen values that say what to do, not how; each kind has its file."""

from __future__ import annotations

from lowtide.flow.steps.ask import Answers, Ask, CallFailed, Failed, Ordered, passes_keys
from lowtide.flow.steps.ends import Merge, Read, Write
from lowtide.flow.steps.exchange import KeyBy, Relay, check_columns
from lowtide.flow.steps.join import Connect, Join, JoinAsof, JoinTable, Table
from lowtide.flow.steps.keyed import Aggregated, Broadcast, Deduplicate, Ended, FlatScan, Last, Reduce, Running, Scan
from lowtide.flow.steps.loop import Again, Feedback, Loop
from lowtide.flow.steps.per_record import Filter, FlatMap, Map, MapBatches, Side, Split
from lowtide.flow.steps.step import Asked, Step, called, check_predicate
from lowtide.flow.steps.substream import Begun, Substream
from lowtide.flow.steps.timed import Clock, Sign, TimedScan
from lowtide.flow.steps.window_by import Applied, Combined, Folded, Late, Reduced, Through, WhenDone, WindowBy

__all__ = [
    "Again",
    "Aggregated",
    "Answers",
    "Applied",
    "Ask",
    "Asked",
    "Begun",
    "Broadcast",
    "CallFailed",
    "Clock",
    "Combined",
    "Connect",
    "Deduplicate",
    "Ended",
    "Failed",
    "Feedback",
    "Filter",
    "FlatMap",
    "FlatScan",
    "Folded",
    "Join",
    "JoinAsof",
    "JoinTable",
    "KeyBy",
    "Last",
    "Late",
    "Loop",
    "Map",
    "MapBatches",
    "Merge",
    "Ordered",
    "Read",
    "Reduce",
    "Reduced",
    "Relay",
    "Running",
    "Scan",
    "Side",
    "Sign",
    "Split",
    "Step",
    "Substream",
    "Table",
    "Through",
    "TimedScan",
    "WhenDone",
    "WindowBy",
    "Write",
    "called",
    "check_columns",
    "check_predicate",
    "passes_keys",
]

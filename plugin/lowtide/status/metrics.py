"""A job's view as Prometheus metrics; docs/monitoring.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from lowtide.histogram import Histogram
from lowtide.status.job_view import JobView
from lowtide.status.recent import LATENCY, TURN
from lowtide.status.teller import AT
from lowtide.version import __version__

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The buckets' upper bounds: close together in the range of latencies that Lowtide is made for."""

TURN_BOUNDS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0)
"""Those of a turn of a loop."""

JOB = "job_name"
"""The label of every sample that says whose it is; `job` is what Prometheus itself calls that which it scrapes."""

ALL = "all"
"""The label of the whole job among segments."""

COUNTS = {
    "files": ("files", "Files put.", ["sink"]),
    "file_bytes": ("file_bytes", "Their bytes.", ["sink"]),
    "commits": ("table_commits", "Commits to a table, by result.", ["sink", "result"]),
    "puts": ("puts", "Puts into a store, by result.", ["sink", "result"]),
}
"""By what a carrier counts, its metric; a count with a result is called "commits refused", say."""

Histograms = Mapping[str, Mapping[int, int]]


class JobMetrics(Collector):
    """Collects the metrics of one job on request.

    Args:
        job: Its name, which every sample has as the label `job_name`.
        view: The job's view; None while there is none.
        histograms: All durations since the life began, by name.
        call_seconds: The durations of calls, likewise, by step.
        delivery_seconds: The durations of deliveries, likewise, by store.
    """

    def __init__(
        self,
        job: str,
        view: Callable[[], JobView | None],
        histograms: Callable[[], Histograms],
        call_seconds: Callable[[], Histograms],
        delivery_seconds: Callable[[], Histograms],
    ) -> None:
        self._job = job
        self._view = view
        self._histograms = histograms
        self._call_seconds = call_seconds
        self._delivery_seconds = delivery_seconds
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in the text format that an `Accept` header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; only the build's while there is no view."""
        for metric in self._metrics():
            metric.samples = [each._replace(labels={JOB: self._job, **each.labels}) for each in metric.samples]
            yield metric

    def _metrics(self) -> Iterator[Metric]:
        yield InfoMetricFamily("lowtide_build", "The version of Lowtide that runs the job.", {"version": __version__})
        view = self._view()
        if view is None:
            return
        yield from _counts(view)
        yield from _times(view)
        yield from _fronts(view)
        yield from _processes(view)
        yield from _kept(view)
        yield from _calls(view, self._call_seconds())
        yield from _disk(view)
        yield from _traces(view)
        yield from _snapshots(view)
        yield from _durations(self._histograms())
        yield _deliveries(self._delivery_seconds())


def _counts(view: JobView) -> Iterator[Metric]:
    totals = view.totals
    yield _counter("records_in", "Records read from the sources.", totals.records_in)
    yield _counter("delivered", "Records delivered to the sinks, dead letters apart.", totals.delivered)
    yield _counter("dead_letters", "Records given to the dead letters.", totals.dead_letters)
    yield _counter("repairs", "Results that a late record replaced before they were delivered.", totals.repairs)
    passed = CounterMetricFamily(
        "lowtide_level_records", "Records into a level's workers and out of them.", labels=["level", "direction"]
    )
    for level in view.levels:
        passed.add_metric([str(level.level), "in"], level.records_in)
        passed.add_metric([str(level.level), "out"], level.records_out)
    yield passed
    late = CounterMetricFamily(
        "lowtide_late_records",
        "Records that were too late for a window or a join, or too far ahead of log time.",
        labels=["step", "why"],
    )
    for step, seen in sorted(totals.late.items()):
        late.add_metric([step, "closed"], seen.closed)
        late.add_metric([step, "ahead"], seen.ahead)
    yield late
    retries = CounterMetricFamily(
        "lowtide_store_retries",
        "Deliveries and questions that a store has had to be given again.",
        labels=["store", "why"],
    )
    for store, counts in sorted(view.retries.items()):
        for why, count in sorted(counts.items()):
            retries.add_metric([store, why], count)
    yield retries
    refused = CounterMetricFamily(
        "lowtide_refused_rows", "Rows that a table has refused, which are in lowtide.refused.", labels=["sink"]
    )
    for sink_name, rows in sorted(view.refused.items()):
        refused.add_metric([sink_name], rows)
    yield refused
    yield from _of_steps(view)
    yield from _of_sinks(view)
    yield from _staged(view)


def _of_steps(view: JobView) -> Iterator[Metric]:
    letters = CounterMetricFamily(
        "lowtide_step_dead_letters", "Records that a step has given to the dead letters.", labels=["step"]
    )
    for step, dead in sorted(view.letters.items()):
        letters.add_metric([step], dead.records)
    yield letters
    busy = _gauge("step_busy", "Share of one process's time that a step takes, over the last seconds.", "step")
    for each in view.steps:
        if each.does != "write":
            busy.add_metric([each.step], each.busy)
    yield busy


def _of_sinks(view: JobView) -> Iterator[Metric]:
    records = CounterMetricFamily("lowtide_sink_records", "Records delivered to a sink.", labels=["sink"])
    size = CounterMetricFamily("lowtide_sink_bytes", "Bytes delivered to a sink, in texts and bytes.", labels=["sink"])
    newest = _gauge("sink_newest_record_seconds", "Log time of a sink's newest record, since 1970.", "sink")
    for sink in view.sinks:
        records.add_metric([sink.sink], sink.delivered)
        size.add_metric([sink.sink], sink.bytes)
        if sink.newest_ms is not None:
            newest.add_metric([sink.sink], sink.newest_ms / 1000)
    waiting = _gauge("sink_waiting", "Records that a sink's store has been given and has not taken yet.", "sink")
    waits = _gauge("sink_waits_seconds", "How long the oldest record has waited for a sink's store.", "sink")
    for sink in view.sinks:
        waiting.add_metric([sink.sink], sink.waiting)
        waits.add_metric([sink.sink], sink.waits_s)
    yield from (records, size, newest, waiting, waits)
    transactions = CounterMetricFamily("lowtide_sink_transactions", "Transactions committed.", labels=["sink"])
    for sink in view.sinks:
        transactions.add_metric([sink.sink], sink.transactions)
    yield transactions


def _staged(view: JobView) -> Iterator[Metric]:
    visible = _gauge(
        "sink_visible_time_seconds", "Visible time, since 1970: readers of the store see all before it.", "sink"
    )
    staged = _gauge("sink_staged_bytes", "Size of staged records that are still needed, about.", "sink")
    restarts = CounterMetricFamily(
        "lowtide_carrier_restarts", "Restarts of the process that takes staged records to their store.", labels=["sink"]
    )
    counts = {
        what: CounterMetricFamily(f"lowtide_{name}", text, labels=labels)
        for what, (name, text, labels) in COUNTS.items()
    }
    for sink in view.sinks:
        if sink.staged is not None:
            for counted, count in sorted(sink.staged.counts.items()):
                what, *result = counted.split(" ", 1)
                if what in counts:
                    counts[what].add_metric([sink.sink, *result], count)
            if sink.staged.visible_time_ms is not None:
                visible.add_metric([sink.sink], sink.staged.visible_time_ms / 1000)
            staged.add_metric([sink.sink], sink.staged.bytes)
            restarts.add_metric([sink.sink], sink.staged.restarts)
    yield from (visible, staged, restarts, *counts.values())


def _times(view: JobView) -> Iterator[Metric]:
    lags = _gauge("min_time_lag_seconds", "Lag of a segment's min time behind the broker's clock.", "segment")
    known = {str(segment.segment): segment.lag_ms for segment in view.segments} | {ALL: view.lag_ms}
    for name, lag_ms in known.items():
        if lag_ms is not None:
            lags.add_metric([name], lag_ms / 1000)
    yield lags
    holders = InfoMetricFamily("lowtide_min_time_holder", "The holder of min time.", labels=["segment"])
    said = {str(segment.segment): segment.holder for segment in view.segments} | {ALL: view.holder}
    for name, holder in said.items():
        if holder:
            # Without the time: a label that changes all the time is a new series each time.
            holders.add_metric([name], {"holder": holder.partition(AT)[0]})
    yield holders
    yield _one("held_seconds", "How long the job's min time has not moved.", view.held_s)
    yield _one(
        "min_time_seconds",
        "The job's min time, since 1970: everything before it has left all segments.",
        _s(view.min_time_ms),
    )
    yield _one(
        "delivered_time_seconds",
        "The delivered time, since 1970: everything before it is durable in the sinks.",
        _s(view.delivered_time_ms),
    )
    yield _one("started_time_seconds", "Start of the life, since 1970.", _s(view.started_ms))


def _fronts(view: JobView) -> Iterator[Metric]:
    lags = _gauge("front_lag_seconds", "Lag of a front's heartbeat behind the broker's clock.", "partition")
    parked = _gauge(
        "front_parked", "Records that a front has read and holds back because it is ahead of others.", "partition"
    )
    pulling = _gauge("front_pulling", "1 while a front reads, 0 while it is stopped.", "partition")
    ticks = _gauge("front_tick_bytes", "Bytes of the records that a front has given its last tick so far.", "partition")
    overfull = _gauge(
        "front_overfull", "1 while one tick has 128 MiB, or twice a larger job.max_front_bytes.", "partition"
    )
    own = CounterMetricFamily(
        "lowtide_front_own_floors",
        "How often a front advanced by itself because it read older records.",
        labels=["partition"],
    )
    spare = _gauge(
        "commit_spare_records", "Records that a source still has before those that the last commit needs.", "partition"
    )
    for front in view.fronts:
        if front.spare is not None:
            spare.add_metric([front.partition], front.spare)
        if front.lag_ms is not None:
            lags.add_metric([front.partition], front.lag_ms / 1000)
        parked.add_metric([front.partition], front.parked)
        pulling.add_metric([front.partition], int(front.pulling))
        ticks.add_metric([front.partition], front.tick_bytes)
        overfull.add_metric([front.partition], int(front.overfull))
        own.add_metric([front.partition], front.own_floors)
    yield from (lags, parked, pulling, ticks, overfull, own, spare)


def _processes(view: JobView) -> Iterator[Metric]:
    workers = _gauge("workers", "Worker processes that have reported.", "level")
    levels = [worker.level for worker in view.workers if worker.pid]
    for level in sorted(set(levels)):
        workers.add_metric([str(level)], levels.count(level))
    yield workers
    yield _counter("tracker_restarts", "Restarts of the tracker's process.", view.tracker.restarts)
    if view.tracker.shards:
        working = _gauge("tracker_shard_working", "1 while a shard of the tracker works, 0 if not.", "shard")
        for shard in view.tracker.shards:
            working.add_metric([str(shard.shard)], int(not shard.trouble))
        yield working
        yield from _shard_traffic(view)
    yield _one("tracker_floors", "Floors that the tracker keeps.", view.tracker.floors)
    yield from _traffic(view)
    yield _one(
        "clock_jump_seconds",
        "Difference between the broker's clock and the job's estimate of it.",
        view.clock_jump_ms / 1000,
    )
    yield _one("troubles", "Number of open problems that do not stop the job.", len(view.troubles))
    found = InfoMetricFamily(
        "lowtide_trouble", "A step, sink, partition or folder that keeps records up.", labels=["kind", "name"]
    )
    for trouble in view.found:
        found.add_metric([trouble.kind, trouble.name], {})
    yield found
    yield _one("incarnation", "The number of the job's life.", view.incarnation)
    yield _one("running", "1 while the job runs, 0 while it starts or stops.", int(view.phase == "running"))


def _traffic(view: JobView) -> Iterator[Metric]:
    traffic = view.tracker.traffic
    messages = CounterMetricFamily("lowtide_tracker_messages", "Messages of the tracker.", labels=["direction"])
    sizes = CounterMetricFamily("lowtide_tracker_bytes", "Their bytes, handshakes included.", labels=["direction"])
    for direction, number, size in (
        ("in", traffic.messages_in, traffic.bytes_in),
        ("out", traffic.messages_out, traffic.bytes_out),
    ):
        messages.add_metric([direction], number)
        sizes.add_metric([direction], size)
    yield from (messages, sizes)
    yield _counter("tracker_flushes", "Flushes that the tracker has received.", traffic.flushes)
    yield _counter("tracker_acks", "Entries of these flushes.", traffic.acks)
    yield _counter("tracker_notices", "Notices that the tracker has sent, each to one subscriber.", traffic.notices)
    acks = CounterMetricFamily("lowtide_segment_acks", "Entries that workers have flushed.", labels=["segment"])
    for segment in view.segments:
        acks.add_metric([str(segment.segment)], segment.acks)
    yield acks
    messages = CounterMetricFamily(
        "lowtide_worker_tracker_messages", "Messages between a process and the tracker.", labels=["worker", "direction"]
    )
    sizes = CounterMetricFamily("lowtide_worker_tracker_bytes", "Their bytes.", labels=["worker", "direction"])
    for worker in view.workers:
        traffic = worker.gauges.get("line", {}).get("traffic")
        for direction in ("in", "out") if traffic else ():
            messages.add_metric([worker.worker, direction], traffic[f"messages_{direction}"])
            sizes.add_metric([worker.worker, direction], traffic[f"bytes_{direction}"])
    yield from (messages, sizes)


def _shard_traffic(view: JobView) -> Iterator[Metric]:
    labels = ["shard", "direction"]
    messages = CounterMetricFamily(
        "lowtide_tracker_shard_messages", "Messages of a shard of the tracker.", labels=labels
    )
    sizes = CounterMetricFamily("lowtide_tracker_shard_bytes", "Their bytes, handshakes included.", labels=labels)
    acks = CounterMetricFamily(
        "lowtide_tracker_shard_acks", "Entries of flushes that it has received.", labels=["shard"]
    )
    for shard in view.tracker.shards:
        number, traffic = str(shard.shard), shard.traffic
        messages.add_metric([number, "in"], traffic.messages_in)
        messages.add_metric([number, "out"], traffic.messages_out)
        sizes.add_metric([number, "in"], traffic.bytes_in)
        sizes.add_metric([number, "out"], traffic.bytes_out)
        acks.add_metric([number], traffic.acks)
    yield from (messages, sizes, acks)


def _kept(view: JobView) -> Iterator[Metric]:
    counts = _gauge(
        "kept", "Keys, timers, open windows, records in joins and rows of tables that steps keep.", "step", "what"
    )
    sizes = _gauge("kept_bytes", "The memory they take, approximately.", "step", "what")
    for step, kept in sorted(view.kept.items()):
        counts.add_metric([step, kept.what], kept.count)
        sizes.add_metric([step, kept.what], kept.bytes)
    yield from (counts, sizes)


def _disk(view: JobView) -> Iterator[Metric]:
    disk = view.disk
    if disk is None:
        return
    yield _one("state_disk_keys", "Keys whose state is on disk.", disk.keys)
    yield _one("state_disk_bytes", "Room that state on disk takes.", disk.bytes)
    yield _one("state_disk_fullest", "Share of its room that the fullest process takes, 0 to 1.", disk.fullest)
    reads = CounterMetricFamily(
        "lowtide_state_lookups", "Keys of batches whose state was in memory or not.", labels=["found"]
    )
    reads.add_metric(["memory"], disk.hits)
    reads.add_metric(["disk"], disk.misses)
    yield reads
    said = "Snapshots that were given up, as they held room on disk while there was little left."
    given_up = CounterMetricFamily("lowtide_state_disk_snapshots_given_up", said)
    given_up.add_metric([], disk.given_up)
    yield given_up


def _traces(view: JobView) -> Iterator[Metric]:
    traces = view.traces
    if traces is None:
        return
    spans = CounterMetricFamily("lowtide_trace_spans", "Spans of traces, by what became of them.", labels=["result"])
    spans.add_metric(["sent"], traces.sent)
    spans.add_metric(["failed"], traces.failed)
    spans.add_metric(["dropped"], traces.dropped)
    yield spans


def _calls(view: JobView, seconds: Histograms) -> Iterator[Metric]:
    opened = _gauge("calls_open", "Calls of outside services without an answer.", "step")
    waiting = _gauge("calls_waiting", "Records that wait to be asked about.", "step")
    oldest = _gauge("call_oldest_seconds", "Age of the oldest call without an answer; 0 without one.", "step")
    took = HistogramMetricFamily(
        "lowtide_call_seconds", "From a question to its answer, with all tries.", labels=["step"]
    )
    retries = CounterMetricFamily("lowtide_call_retries", "Tries of calls after the first.", labels=["step"])
    failures = CounterMetricFamily("lowtide_call_failures", "Calls that have failed for good.", labels=["step"])
    reused = CounterMetricFamily(
        "lowtide_answers_reused", "Answers of earlier lives that were used again.", labels=["step"]
    )
    for step, calls in sorted(view.calls.items()):
        opened.add_metric([step], calls.open)
        waiting.add_metric([step], calls.waiting)
        oldest.add_metric([step], calls.oldest_s)
        took.add_metric([step], *_buckets(seconds.get(step, {})))
        retries.add_metric([step], calls.retries)
        failures.add_metric([step], calls.failures)
        reused.add_metric([step], calls.reused)
    yield from (opened, waiting, oldest, took, retries, failures, reused)
    yield _counter("caller_restarts", "Restarts of processes that ask services.", view.caller_restarts)


def _snapshots(view: JobView) -> Iterator[Metric]:
    snapshots = view.snapshots
    yield _one("commit_age_seconds", "Time since the last commit, over lives.", snapshots.committed_s)
    yield _one("commit_time_seconds", "The last commit's min time, since 1970.", _s(snapshots.last_ms))
    yield _one("snapshot_seconds", "How long the last snapshot took.", snapshots.took_s)
    yield _one("snapshot_bytes", "The size of the last snapshot's state.", snapshots.bytes)
    outcomes = _gauge("snapshots", "The last snapshots of this life, 20 at most, by outcome.", "phase")
    for phase in ("committed", "sealed", "failed"):
        outcomes.add_metric([phase], snapshots.counts.get(phase, 0))
    yield outcomes


def _durations(histograms: Histograms) -> Iterator[Metric]:
    latency = HistogramMetricFamily("lowtide_latency_seconds", "From a record's timestamp until it was durable.")
    latency.add_metric([], *_buckets(histograms.get(LATENCY, {})))
    yield latency
    hops = HistogramMetricFamily("lowtide_hop_seconds", "Where a record's time goes, by hop.", labels=["hop"])
    for hop in sorted(histograms.keys() - {LATENCY, TURN}):
        hops.add_metric([hop], *_buckets(histograms[hop]))
    yield hops
    turns = HistogramMetricFamily("lowtide_host_turn_seconds", "Turns of the loops of processes with workers.")
    turns.add_metric([], *_buckets(histograms.get(TURN, {}), TURN_BOUNDS_S))
    yield turns


def _deliveries(seconds: Histograms) -> Metric:
    took = HistogramMetricFamily(
        "lowtide_delivery_seconds", "From a packet's hand-over to a store until it was durable.", labels=["store"]
    )
    for store, counts in sorted(seconds.items()):
        took.add_metric([store], *_buckets(counts))
    return took


def _buckets(counts: Mapping[int, int], at_s: Sequence[float] = BOUNDS_S) -> tuple[list[tuple[str, float]], float]:
    """Return cumulative counts by bound, and the sum in seconds.

    A worker's bucket counts below a bound only if all of it does: no duration is reported shorter than it was. The sum
    takes each duration as its bucket's upper edge, at most 1/8 too much.
    """
    upper = sorted((_upper_s(bucket), count) for bucket, count in counts.items())
    bounds = [(str(bound), sum(count for edge, count in upper if edge <= bound)) for bound in at_s]
    total = sum(count for _, count in upper)
    return [*bounds, ("+Inf", total)], sum(edge * count for edge, count in upper)


@cache
def _upper_s(bucket: int) -> float:
    return Histogram({bucket: 1}).percentile_ms(100) / 1000


def _s(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"lowtide_{name}", text, value=value)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"lowtide_{name}", text, labels=labels)


def _one(name: str, text: str, value: float | None) -> Metric:
    """A gauge without labels; without a sample where the value is not known."""
    return GaugeMetricFamily(f"lowtide_{name}", text, value=value)

"""Indexes real text on a Kafka of its own, kills the job in the middle, and compares every byte that came out.

    make demo                    # the Python standard library's sources
    make demo DOCUMENTS=~/notes  # the text files of a folder

It takes everything down again; data and logs stay in .lowtide/demo until the next time. The last line is one JSON
object, and the exit status is 0 only if nothing was lost, doubled or out of order, although records came late.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
from inverted_index import flow

from demo.comparing import compare_job
from demo.corpus import Corpus, read_corpus
from demo.feeding import Feeder
from demo.looking_up import answer, documents_with
from demo.reading import CAUGHT_UP_MS, WARM_UP_MS, Reader, caught_up, steady
from demo.running import Job, write_conf
from demo.showing import Show
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import EmbeddedServices
from lowtide.errors import LowtideError
from lowtide.local.oracle import Output, Verdict
from lowtide_bench.arrivals import percentiles

FLOW = Path("examples/inverted_index.py")
FOLDER = Path(".lowtide/demo")
PARTITIONS = 2
FEED_S = 45.0
KILL_AFTER_S = 15.0
GATE_SHARE = 0.75
"""Share to send first; the last quarter is sent when the killed job has caught up, to measure it after that."""
CATCH_UP_LIMIT_S = 90.0
ARRIVE_LIMIT_S = 90.0
LINGER_S = 1.0
"""Time to wait after the last awaited change: a surplus one may still come."""

MEANING = f"""
p50 and p99 are of {{count:,}} changes, from a document's timestamp in Kafka to the clock of a read_committed reader.
Left out are the first {WARM_UP_MS // 1000} s, and from the kill until a change came that was less than
{CAUGHT_UP_MS // 1000} s old, or all that had been sent was there ({{outage_s:.1f}} s).
records_per_s is of the same changes: the producers' pace, no limit.
The job's log and conf are in {FOLDER} until the next time."""


class Demo:
    """One run of the demo, between services that exist and end with it."""

    def __init__(self, services: EmbeddedServices, corpus: Corpus, show: Show) -> None:
        conf_file = write_conf(FOLDER, services)
        self._conf = Conf.load(conf_file)
        self._corpus = corpus
        self._show = show
        self._job = Job(flow.name, FLOW, conf_file, FOLDER / "jobs", show.say)
        self._reader = Reader(services.kafka, "index", PARTITIONS)
        self._feeder = Feeder(
            services.kafka, "documents", corpus.texts, PARTITIONS, seconds=FEED_S, gate_share=GATE_SHARE
        )
        self._due = corpus.changes()

    def run(self) -> int:
        """Feed, kill, recover, compare; return the exit status."""
        for name in ("documents", "index"):
            Topics(self._conf.kafka).create(name, partitions=PARTITIONS)
        try:
            self._job.check()
            self._job.start()
            self._reader.start()
            outage_ms = self._feed()
            self._job.stop()
        finally:
            self._feeder.end()
            self._reader.end()
            self._job.stop()
        verdict, delivered = self._compare()
        return self._tell(verdict, delivered, outage_ms)

    def _feed(self) -> tuple[float, float]:
        """Send all documents, with a kill on the way; return its time, and that of the reader's catching up, in ms."""
        show = self._show
        show.step(f"two producers send {self._feeder.total:,} documents: each of them in two versions")
        self._feeder.start()
        self._watch(KILL_AFTER_S, lambda: False)
        killed_ms = time.time() * 1e3
        pid = self._job.kill()
        dead_ms = time.time() * 1e3
        show.step(f"driver {pid} is dead, and all it had started; the producers do not know")
        self._job.start()
        self._watch(CATCH_UP_LIMIT_S, lambda: self._caught_up(dead_ms) is not None)
        caught_up_ms = self._caught_up(dead_ms)
        if caught_up_ms is None:
            raise SystemExit(f"demo: not caught up within {CATCH_UP_LIMIT_S:.0f} s of the start\n{self._job.log()}")
        show.step(f"caught up {(caught_up_ms - killed_ms) / 1e3:.1f} s after the kill; the last documents are sent")
        self._feeder.open_gate()
        self._watch(FEED_S + ARRIVE_LIMIT_S, lambda: self._feeder.done and len(self._reader) >= self._due)
        self._watch(LINGER_S, lambda: False)
        self._job.look()
        return killed_ms, caught_up_ms

    def _caught_up(self, dead_ms: float) -> float | None:
        """Return when a young change came again, or all output of what was sent was there, in ms; None before that."""
        if len(self._reader) >= self._feeder.changes:
            return time.time() * 1e3
        return caught_up(*self._reader.seen(), dead_ms)

    def _watch(self, limit_s: float, done: Callable[[], bool]) -> None:
        self._job.watch(self._show, limit_s, done, self._progress)

    def _progress(self) -> str:
        return (
            f"{self._feeder.sent:,} of {self._feeder.total:,} documents sent, "
            f"{len(self._reader):,} of {self._due:,} changes delivered"
        )

    def _compare(self) -> tuple[Verdict, dict[int, list[Output]]]:
        """Compare the output with a local run on the same log, with the labels that the job decided."""
        self._show.step("the same log through run_locally's interpreter, one record after the other")
        verdict, delivered = compare_job(flow, self._conf, "index")
        self._show.say(str(verdict))
        return verdict, delivered

    def _tell(self, verdict: Verdict, delivered: dict[int, list[Output]], outage_ms: tuple[float, float]) -> int:
        show = self._show
        word = os.environ.get("WORD", "yield")
        found = documents_with(word, [output for lane in delivered.values() for output in lane])
        as_in_the_texts = found == self._corpus.documents_with(word)
        show.step(f"from the topic: {answer(word, found)}")
        show.say(f"the texts say {'the same' if as_in_the_texts else 'something else'}")
        latency, rate = steady(*self._reader.seen(), outage_ms)
        p50, p99 = percentiles(np.asarray(latency), (50, 99))
        show.say(MEANING.format(count=len(latency), outage_s=(outage_ms[1] - outage_ms[0]) / 1e3))
        said = {
            "records": self._feeder.sent,
            "delivered": verdict.delivered,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "out_of_order": verdict.out_of_order,
            "repairs": self._job.repairs,
            "kills": 1,
            "records_per_s": round(rate, 1),
            "p50_ms": round(p50, 1),
            "p99_ms": round(p99, 1),
        }
        show.say(json.dumps(said))
        return 0 if verdict.right and as_in_the_texts and self._job.repairs > 0 else 1


def main() -> int:
    os.chdir(Path(__file__).parents[2])
    signal.signal(signal.SIGTERM, _interrupt)
    show = Show()
    given = os.environ.get("DOCUMENTS")
    corpus = read_corpus(Path(given).expanduser() if given else None, PARTITIONS)
    show.step(corpus.said)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        show.step("starting Kafka and ZooKeeper")
        with EmbeddedServices(FOLDER / "services") as services:
            return Demo(services, corpus, show).run()
    except LowtideError as error:
        show.say(f"error: {error}")
        return error.exit_code
    finally:
        show.hide()
        shutil.rmtree(FOLDER / "services", ignore_errors=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

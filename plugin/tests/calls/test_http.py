"""A call of an HTTP server that is slow, resets and fails at random, while the caller process is killed."""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import cloudpickle
from hanging import HANGS_S

from lowtide.calls.inside import CallRefused, call_key
from lowtide.calls.line import Callers
from lowtide.calls.outcome import Answered, Question
from lowtide.calls.setting import CallSetting
from lowtide.flow.schema.fields import decoder_of

COUNT = 400
UNKNOWN = range(0, COUNT, 50)
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Order:
    id: int
    url: str


@dataclass(frozen=True)
class Score:
    id: int
    value: int


class Service(ThreadingHTTPServer):
    """Gives each idempotency key a number of its own, once, and says so not always."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.random = random.Random(7)
        self.lock = threading.Lock()
        self.scores: dict[str, int] = {}
        self.requests: Counter[str] = Counter()

    def handle_error(self, request: object, client_address: object) -> None:
        """The client has gone, killed."""


class Request(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        service = self.server
        key, order = self.headers["Idempotency-Key"], int(self.path.rpartition("/")[2])
        with service.lock:
            service.requests[key] += 1
            drawn = service.random.random()
            delay = service.random.random() * 0.02
            score = service.scores.setdefault(key, len(service.scores))
        time.sleep(delay)
        if drawn < 0.1:
            self.close_connection = True  # With no answer.
            return
        status = 503 if drawn < 0.2 else 404 if order in UNKNOWN else 200
        body = str(score).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()


async def scored(order: Order, http: aiohttp.ClientSession) -> Score:
    async with http.post(f"{order.url}/{order.id}", headers={"Idempotency-Key": call_key()}) as answer:
        if answer.status == 404:
            raise CallRefused(f"order {order.id} is unknown")
        answer.raise_for_status()
        return Score(order.id, int(await answer.text()))


def test_each_question_is_answered_once_and_each_key_has_one_effect() -> None:
    setting = CallSetting(
        "score", scored, Order, Score, concurrency=32, timeout_s=5.0, retries=30, resource=aiohttp.ClientSession
    )
    answers: dict[int, Answered] = {}
    with serving() as service:
        url = f"http://127.0.0.1:{service.server_port}/orders"
        callers = Callers([setting], max_bytes=1 << 20)
        callers.ask(0, [Question(number, f"key {number}", Order(number, url)) for number in range(COUNT)])
        killed = 0
        deadline = time.monotonic() + HANGS_S
        while len(answers) < COUNT:
            assert time.monotonic() < deadline, f"{len(answers)} answers came"
            callers.send()
            select.select([callers], [], [], 0.05)
            for each in callers.answers():
                assert each.id not in answers
                answers[each.id] = each
            if len(answers) > 100 * (killed + 1) and killed < 2:
                os.kill(callers.pid, signal.SIGKILL)
                killed += 1
        assert callers.restarts == killed == 2
        callers.close(5.0)
    assert set(service.scores) == {f"key {number}" for number in range(COUNT)}
    assert service.requests.total() > COUNT * 1.1
    failed = {id_: each.failure.what for id_, each in answers.items() if each.failure}
    assert failed == {id_: f"refused: order {id_} is unknown" for id_ in UNKNOWN}
    values = [decoder_of(Score)(each.value)[0] for each in answers.values() if each.value is not None]
    assert {score.id: score.value for score in values} == {
        number: service.scores[f"key {number}"] for number in range(COUNT) if number not in UNKNOWN
    }

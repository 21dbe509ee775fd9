"""The control API over real HTTPS on loopback: who is let in, what is answered, and that no client holds it up."""

import io
import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from controlled import TOKEN, ControlledJob, controlled
from prometheus_client.parser import text_string_to_metric_families
from seen import MIN_TIME, SHAPE, moment, reader, report, worker

from lowtide.events import EventLog
from lowtide.histogram import Histogram
from lowtide.service.standbys import NoStandby
from lowtide.status import control
from lowtide.status.control_client import ControlClient
from lowtide.status.gauges import KeptGauges, LateGauges, LineGauges
from lowtide.status.metrics import BOUNDS_S, JobMetrics
from lowtide_snapshots.errors import ControlRefused, ControlUnreachable, TokenRefused
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_tracker import Holder, Traffic


@pytest.fixture(name="job")
def _job() -> Iterator[ControlledJob]:
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        job.watch.look(0.0, moment(5000))
        yield job


def ask(job: ControlledJob, request: str, token: str = TOKEN, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """Sends a request as it stands; the answer's status, headers and body, read until the connection ends."""
    with connect(job) as connection:
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        connection.sendall(f"{request} HTTP/1.1\r\nHost: a\r\n{shown}\r\n".encode("latin-1") + body)
        return answer(connection)


def connect(job: ControlledJob) -> ssl.SSLSocket:
    """As a program does that knows the certificate, and checks the server's name."""
    host, port = job.address.split(":")
    tls = ssl.create_default_context(cadata=job.certificate)
    return tls.wrap_socket(socket.create_connection((host, int(port)), 5), server_hostname="localhost")


def answer(connection: ssl.SSLSocket) -> tuple[int, dict[str, str], bytes]:
    reported = b""
    while more := connection.recv(1 << 16):
        reported += more
    head, _, content = reported.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), content


def samples(text: str) -> dict[tuple[str, str], float]:
    """Value by (name, labels as text), without the label that says whose they are, which all have."""
    found = {}
    for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
        assert sample.labels.pop("job_name") == SHAPE.job
        found[sample.name, ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))] = sample.value
    return found


def test_the_client_gets_the_view_that_the_service_has(job: ControlledJob) -> None:
    client = job.client()
    assert client.status() == job.watch.view()
    assert 'lowtide_incarnation{job_name="index"} 3.0' in client.metrics()
    assert job.stops == []
    client.stop()
    assert job.stops == ["stop"]


def test_a_job_is_handed_over_only_if_a_standby_waits(job: ControlledJob) -> None:
    client = job.client()
    client.hand_over()
    assert job.stops == ["hand over"]

    def refuse() -> None:
        raise NoStandby("no standby waits", way_out="start one")

    job.handing_over = refuse
    with pytest.raises(ControlRefused, match="no standby waits") as refused:
        client.hand_over()
    assert refused.value.way_out == "start one"
    assert job.stops == ["hand over"]


@pytest.mark.parametrize("token", ["", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\xe4"])
@pytest.mark.parametrize("request_line", ["GET /status", "GET /metrics", "GET /api/job", "GET /api/jobs", "POST /stop"])
def test_without_the_token_nothing_is_said_and_nothing_done(job: ControlledJob, request_line: str, token: str) -> None:
    status, headers, body = ask(job, request_line, token)
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="lowtide"')
    assert "`token` of the job's folder" in json.loads(body)["what_to_do"]
    assert b"index" not in body
    assert job.stops == []


def test_a_wrong_token_is_an_error_of_its_own(job: ControlledJob) -> None:
    with pytest.raises(TokenRefused, match="current life"):
        job.client("another").status()


def test_health_is_open_and_says_nothing(job: ControlledJob) -> None:
    assert ask(job, "GET /health", token="")[::2] == (200, b"ok\n")


def test_the_page_is_open_and_says_nothing_of_the_job(job: ControlledJob) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/static/page.js", "text/javascript"),
        ("/static/icon.svg", "image/svg+xml"),
    ):
        status, headers, body = ask(job, f"GET {path}", token="")
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert headers["Cache-Control"] == "no-store"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert b"index" not in body
    assert ask(job, "POST /", token="")[0] == 405


@pytest.mark.parametrize(
    "path", ["/static/page.html", "/static/..%2ffiles.py", "/static/", "/static/../status", "/api/"]
)
def test_nothing_else_is_given_away_with_it(job: ControlledJob, path: str) -> None:
    assert ask(job, f"GET {path}", token="")[0] in (401, 404)


def test_the_page_gets_all_that_it_shows_in_one_answer(job: ControlledJob) -> None:
    jobs = json.loads(ask(job, "GET /api/jobs")[2])
    assert (jobs["server"], jobs["jobs"][0]["job"], jobs["jobs"][0]["state"]) == ("job", "index", "running")
    job.look(1.0, moment(5001))
    answer = json.loads(ask(job, "GET /api/job?job=index&connection=&since_ms=0")[2])
    assert (answer["job"], answer["state"], answer["why"], answer["to_do"]) == ("index", "running", "", [])
    assert answer["live"]["holder"] == "front 3 (documents-1)"
    assert [segment["name"] for segment in answer["live"]["segments"]] == ["last, changes", "index"]
    assert len(answer["live"]["fronts"]) == 3
    assert "workers" not in answer["live"]
    assert len(answer["history"]["fine"]) == 1
    seen_ms = answer["history"]["seen_ms"]
    again = json.loads(ask(job, f"GET /api/job?since_ms={seen_ms}")[2])
    assert again["history"]["fine"] == []
    assert ask(job, "GET /api/job?since_ms=soon")[0] == 400


def test_an_unknown_route_is_answered_with_those_that_there_are(job: ControlledJob) -> None:
    status, headers, body = ask(job, "GET /jobs", token="")
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert set(json.loads(body)["routes"]) == set(control.ROUTES)
    assert ask(job, "POST /health")[0] == 405
    assert ask(job, "GET /stop")[0] == 405
    assert job.stops == []


def test_before_the_first_look_there_is_no_status() -> None:
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        assert ask(job, "GET /status")[0] == 503
        with pytest.raises(ControlUnreachable, match="503"):
            job.client().status()
        assert samples(job.client().metrics()).keys() == {("lowtide_build_info", "version=0.1.0")}


def test_nobody_answers_at_the_address_of_a_job_that_has_gone() -> None:
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        pass
    with pytest.raises(ControlUnreachable, match="refused"):
        job.client().status()
    nowhere = ControlAddress.proved(TOKEN, job="index", incarnation=3, address="no address", certificate="")
    with pytest.raises(ControlUnreachable):
        ControlClient(nowhere, TOKEN).status()


@pytest.mark.parametrize(
    "head",
    ["POST /stop HTTP/1.1\r\nContent-Length: 70000", "POST /stop HTTP/1.1\r\nTransfer-Encoding: chunked"],
)
def test_a_body_that_is_too_large_is_refused(job: ControlledJob, head: str) -> None:
    line, header = head.split(" HTTP/1.1\r\n")
    body = b"11170\r\n" + b"x" * 70_000 + b"\r\n0\r\n\r\n" if "chunked" in header else b"x" * 70_000
    with connect(job) as connection:
        request = f"{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n{header}\r\n\r\n"
        connection.sendall(request.encode() + body)
        assert answer(connection)[0] == 413
    assert job.stops == []


@pytest.mark.parametrize("garbage", [b"X: " + b"x" * 9_000, b"\x16\x03\x01\x02\x00\x01" * 100, b"X:\x00y"])
def test_garbage_is_refused_without_a_word_in_the_log(
    job: ControlledJob, garbage: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(job) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n" + garbage + b"\r\n\r\n")
        assert answer(connection)[0] == 400
    assert ask(job, "GET /health")[0] == 200
    assert (caplog.text, capfd.readouterr().err) == ("", "")


def test_a_fault_of_ours_does_not_leave_the_log(job: ControlledJob, caplog: pytest.LogCaptureFixture) -> None:
    job.broken = True
    status, _, body = ask(job, "GET /metrics")
    assert status == 500
    assert b"the test breaks it" not in body
    assert "the test breaks it" in caplog.text
    assert ask(job, "GET /status")[0] == 200


def test_slow_users_are_cut_off_and_limited_in_number(job: ControlledJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that know the token, but never send all they have announced, stand in each other's way alone."""
    monkeypatch.setattr(control, "CONNECTION_LIMIT_S", 2.0)
    fields = f"Host: a\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\nExpect: 100-continue"
    slow = [connect(job) for _ in range(control.MAX_USERS)]
    for connection in slow:
        connection.sendall(f"POST /snapshots HTTP/1.1\r\n{fields}\r\n\r\n{{".encode())
    for connection in slow:  # A client that asks before all of them are in may take the place of one.
        assert connection.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert ask(job, "GET /status")[0] == 503
    assert ask(job, "GET /health")[0] == 200
    for connection in slow:
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b"", "it is closed without a word"
        connection.close()
    assert ask(job, "GET /status")[0] == 200


def test_who_speaks_no_tls_is_refused_and_named_once(job: ControlledJob, caplog: pytest.LogCaptureFixture) -> None:
    host, port = job.address.split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: a\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"HTTP" not in connection.recv(1 << 16)
    assert ask(job, "GET /status")[0] == 200
    (line,) = caplog.messages
    assert line.startswith("refused a connection: ")
    assert "HTTP_REQUEST" in line


def test_many_may_scrape_at_once(job: ControlledJob) -> None:
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda _: job.client().metrics(), range(64)))
    assert len(texts) == 64
    assert set(texts) == {texts[0]}


def test_metrics_are_what_prometheus_reads(job: ControlledJob) -> None:
    took = Histogram()
    for ms, times in ((5.5, 10), (15, 5), (700, 1)):
        took.add(round(ms * 1e6), times)
    workers = [
        reader("0/documents-0", 0, 40, parked=6),
        worker(
            "1/0",
            repairs=2,
            deliveries={"kafka": took.counts, "postgres:default": {}},
            latency=took.counts,
            hops={"python": took.counts},
            late={"w": LateGauges(records=8, closed=3, ahead=1)},
        ),
        worker(
            "1/1", retries={"postgres:default": {"40P01": 3}}, late={"w": LateGauges(closed=4)},
            kept={"w": KeptGauges(what="windows", count=3, bytes=700)},
        ),
        worker(
            "1/2", calls={"score": {"open": 3, "waiting": 4, "reused": 5}},
            callers={"score": {"oldest_s": 1.5, "seconds": took.counts, "retries": 6, "failures": 2}},
            caller_restarts=1, turns=took.counts, traces={"sent": 6, "failed": 2, "dropped": 1},
        ),
        worker(
            "2/0", delivered=30, dead_letters=1, transactions=7, retries={"postgres:default": {"40P01": 2, "57P01": 1}},
            refused={"rows": 4}, deliveries={"kafka": took.counts},
            line=LineGauges(traffic=Traffic(30, 900, 20, 8_000), acks={1: 30, 2: 40}), traces={"sent": 4},
        ),
    ]  # fmt: skip
    job.watch.look(3.0, moment(5000, workers=workers, delivered_time=MIN_TIME))
    found = samples(job.client().metrics())
    wanted = {
        ("lowtide_records_in_total", ""): 40,
        ("lowtide_delivered_total", ""): 30,
        ("lowtide_dead_letters_total", ""): 1,
        ("lowtide_repairs_total", ""): 2,
        ("lowtide_late_records_total", "step=w,why=closed"): 7,
        ("lowtide_late_records_total", "step=w,why=ahead"): 1,
        ("lowtide_kept", "step=w,what=windows"): 3,
        ("lowtide_calls_open", "step=score"): 3,
        ("lowtide_calls_waiting", "step=score"): 4,
        ("lowtide_call_oldest_seconds", "step=score"): 1.5,
        ("lowtide_call_seconds_count", "step=score"): 16,
        ("lowtide_call_seconds_bucket", "le=0.01,step=score"): 10,
        ("lowtide_call_retries_total", "step=score"): 6,
        ("lowtide_call_failures_total", "step=score"): 2,
        ("lowtide_answers_reused_total", "step=score"): 5,
        ("lowtide_caller_restarts_total", ""): 1,
        ("lowtide_trace_spans_total", "result=sent"): 10,
        ("lowtide_trace_spans_total", "result=failed"): 2,
        ("lowtide_trace_spans_total", "result=dropped"): 1,
        ("lowtide_host_turn_seconds_bucket", "le=0.01"): 10,
        ("lowtide_host_turn_seconds_count", ""): 16,
        ("lowtide_kept_bytes", "step=w,what=windows"): 700,
        ("lowtide_sink_transactions_total", "sink=index"): 7,
        ("lowtide_store_retries_total", "store=postgres:default,why=40P01"): 5,
        ("lowtide_store_retries_total", "store=postgres:default,why=57P01"): 1,
        ("lowtide_refused_rows_total", "sink=rows"): 4,
        ("lowtide_min_time_lag_seconds", "segment=1"): 5,
        ("lowtide_min_time_holder_info", "holder=front 3 (documents-1),segment=all"): 1,
        ("lowtide_min_time_holder_info", "holder=front 3 (documents-1),segment=1"): 1,
        ("lowtide_held_seconds", ""): 3,
        ("lowtide_front_lag_seconds", "partition=documents-0"): 5,
        ("lowtide_front_parked", "partition=documents-0"): 6,
        ("lowtide_workers", "level=1"): 3,
        ("lowtide_level_records_total", "direction=in,level=0"): 40,
        ("lowtide_level_records_total", "direction=out,level=2"): 0,
        ("lowtide_tracker_floors", ""): 5,
        ("lowtide_tracker_messages_total", "direction=in"): 5_000,
        ("lowtide_tracker_messages_total", "direction=out"): 4_000,
        ("lowtide_tracker_bytes_total", "direction=in"): 600_000,
        ("lowtide_tracker_flushes_total", ""): 4_000,
        ("lowtide_tracker_acks_total", ""): 16_000,
        ("lowtide_tracker_notices_total", ""): 3_000,
        ("lowtide_segment_acks_total", "segment=1"): 30,
        ("lowtide_segment_acks_total", "segment=2"): 40,
        ("lowtide_worker_tracker_messages_total", "direction=in,worker=2/0"): 30,
        ("lowtide_worker_tracker_messages_total", "direction=out,worker=2/0"): 20,
        ("lowtide_worker_tracker_bytes_total", "direction=out,worker=2/0"): 8_000,
        ("lowtide_delivered_time_seconds", ""): 2 * MIN_TIME / 1000,
        ("lowtide_latency_seconds_count", ""): 16,
        ("lowtide_latency_seconds_bucket", "le=0.005"): 0,
        ("lowtide_latency_seconds_bucket", "le=0.01"): 10,
        ("lowtide_latency_seconds_bucket", "le=0.02"): 15,
        ("lowtide_hop_seconds_bucket", "hop=python 1,le=1.0"): 16,
        ("lowtide_hop_seconds_count", "hop=commit"): 32,
        ("lowtide_delivery_seconds_count", "store=kafka"): 32,
        ("lowtide_delivery_seconds_bucket", "le=0.01,store=kafka"): 20,
        ("lowtide_delivery_seconds_count", "store=postgres:default"): 0,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    buckets = [found["lowtide_latency_seconds_bucket", f"le={bound}"] for bound in BOUNDS_S]
    assert buckets == sorted(buckets)
    assert 0.83 <= found["lowtide_latency_seconds_sum", ""] <= 0.83 * 9 / 8


def test_a_holder_that_moves_is_no_new_series(job: ControlledJob) -> None:
    """Prometheus keeps a series for each label's value: no time may stand in one."""
    job.watch.look(1.0, moment(5000, tracker=report(Holder(MIN_TIME, 2, None))))
    assert "2026-01-02" in str(job.watch.view())
    found = samples(job.client().metrics())
    assert ("lowtide_min_time_holder_info", "holder=an open ack of segment 2,segment=all") in found


def test_every_metric_is_in_the_manual(job: ControlledJob) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
    suffixes = {"counter": "_total", "info": "_info"}
    metrics = JobMetrics(
        job.name, job.watch.view, job.watch.histograms, job.watch.call_seconds, job.watch.delivery_seconds
    ).collect()
    names = [metric.name + suffixes.get(metric.type, "") for metric in metrics]
    assert len(names) > 20
    assert [name for name in names if f"| `{name}`" not in manual and f"| `{name}{{" not in manual] == []

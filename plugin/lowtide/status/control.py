"""The job's control API: a small HTTPS server in the service's event loop.

    control = Control(token, certificate, queries=queries, commands=Commands(stop), hub=hub)
    address = await control.start()

Whatever says something of the job, or does something, asks for the token. The page's files and health do not: they are
the same for every job. A client can neither hold the service up
nor fill it: a connection serves one request; until it has shown the token it is a stranger's, and limited as
`lowtide_tracker.strangers` says; from then on it lives for `CONNECTION_LIMIT_S` whatever it does, and there are
`MAX_USERS` of them. One that has subscribed lives as long as its subscription and takes what it is sent, and there are
`MAX_SUBSCRIBERS` of those.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from lowtide.errors import LowtideError
from lowtide.status.certificate import Certificate
from lowtide.status.control_client import MOST_KEYS
from lowtide.status.event_stream import send_events
from lowtide.status.history import HistoryView
from lowtide.status.job_view import JobView, SnapshotView
from lowtide.status.log_tail import MOST_LINES, LogTail
from lowtide.status.page import jobs_answer
from lowtide.status.subscriptions import Hub, SubscriptionRefused
from lowtide_snapshots.page.answers import JobAnswer
from lowtide_snapshots.page.files import page_file, page_headers
from lowtide_tracker.entrance import Entrance, listen

LOG = logging.getLogger(__name__)

MAX_USERS = 32
MAX_SUBSCRIBERS = 256
CONNECTION_LIMIT_S = 10.0
MAX_BODY_BYTES = 64 << 10
MAX_HEADER_BYTES = 8 << 10
"""Of one header: a browser sends the cookies of all ports of a host."""
MAX_TIME_DIGITS = 15
LINES = 200
"""Of the log, unless another number is asked for."""
_COUNT = re.compile(r"[0-9]{1,5}")

ROUTES = {
    "GET /": "the job's page, for a browser; it asks for the token",
    "GET /status": "the job's status as JSON",
    "GET /metrics": "the same for Prometheus",
    "GET /history?since_ms=TIME": "figures per second for 15 min and per 15 s for 6 h, and events",
    "GET /api/jobs": "the jobs that the page shows: this one",
    "GET /api/job?since_ms=TIME": "the content of its page: of the status, history, snapshots and lives",
    "GET /api/log?lines=COUNT": f"the last lines of the job's log, {MOST_LINES:,} at most, with its machine and "
    "path; null if the job writes none",
    "GET /events?about=SUBJECT&at_ms=TIME": "server-sent events, each once and in order: about `delivered`, `commit`, "
    "`min_time`, `segment:STEP` or `done:STEP:LABEL`, one or several; with at_ms only once it reaches this time. "
    "Continues after the header `Last-Event-ID`",
    "GET /state/STEP?COLUMN=VALUE": "the state of one key as of min time, with that time; a broadcast's without a key",
    "POST /state/STEP": 'the states of many: the body is {"keys": [{"COLUMN": "VALUE"}, ...]}, or {"unit": 7, "limit": '
    "100} for the first keys of a hash unit, or of any without one",
    "GET /done/STEP?label=LABEL": "the time at which the substream of a label ended, with all its results delivered; "
    "null if it has not ended, or is forgotten",
    "GET /snapshots": "the snapshots of this life as JSON, oldest first",
    "POST /snapshots": 'take one; the body may be {"name": "...", "commit": false, "key": "..."}: a repeated key '
    "returns the snapshot that it began",
    "POST /stop": "stop the job; it first delivers what its sinks already have. With the body "
    '{"hand_over": true} a standby continues it; refused if none waits',
    "GET /health": "answers while the job does; needs no token",
}
HOW_TO_GET_IN = (
    "send the header `Authorization: Bearer TOKEN`. The token is in the file `token` of the job's folder "
    "([job].folder/NAME), for the user who runs the job, or in the file that [control].token_file names"
)

OPEN = frozenset({"/", "/health"})
OPEN_FOLDER = "/static/"
EVENTS = "/events"
WHO_IS_ASKED = 'Bearer realm="lowtide"'
"""The page tells by the realm that it is to ask for a job's token."""


def self_address(listening: str) -> str:
    """Return where others reach what listens at an address: of one that is all addresses, this machine's by its name.

    A machine whose name resolves to no other address than loopback is reached over loopback alone.
    """
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what the conf says
    if listening not in loopback:
        return listening
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, family)}
    except OSError:
        found = set()
    others = sorted(address for address in found if not ip_address(address.partition("%")[0]).is_loopback)
    return others[0] if others else loopback[listening]


@dataclass(frozen=True, slots=True)
class Queries:
    """The answers of a job to its control API.

    Attributes:
        view: Returns the job's view; None while there is none.
        metrics: Takes an `Accept` header; returns metrics and their content type.
        history: Returns what the life has looked like after a time; None before the first look.
        page: Returns what the page shows, with the history after a time; None before the first look.
        snapshots: Returns those of this life.
        look: Answers with the states of keys, as `Questions.look` does; None where the state is not served.
        look_around: Answers with the first keys, as `Questions.look_around` does; None as before.
        ended: Answers when a label has ended, as `EndedLabels.ended_ms` does.
        log: Returns so many of the last lines of the job's log; None if it is no file.
    """

    view: Callable[[], JobView | None]
    metrics: Callable[[str], tuple[bytes, str]]
    history: Callable[[int], HistoryView | None]
    page: Callable[[int], Awaitable[JobAnswer | None]]
    snapshots: Callable[[], list[SnapshotView]] = list
    look: Callable[[str, Sequence[dict[str, str]]], Awaitable[list[dict[str, Any]]]] | None = None
    look_around: Callable[[str, int | None, int], Awaitable[dict[str, Any]]] | None = None
    ended: Callable[[str, str], Awaitable[int | None]] | None = None
    log: Callable[[int], LogTail | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Commands:
    """The orders that a job takes from its control API.

    Attributes:
        stop: Begins to end the job, and returns at once.
        hand_over: Begins to end it for a standby to continue it (errors: LowtideError, if none waits); None where
            there are no standbys.
        take: Begins to take a snapshot, given its name, whether to commit it and the request's key; None where none
            are taken.
    """

    stop: Callable[[], None]
    take: Callable[[str | None, bool, str | None], SnapshotView] | None = None
    hand_over: Callable[[], Awaitable[None]] | None = None


class Control:
    """Serves one job's control API.

    Args:
        token: What a request has to show.
        certificate: What the server shows.
        queries: The answers of the job.
        commands: The orders that the job takes.
        hub: The news for subscribers.
        host: Where to listen.
        port: 0 for a free one.
    """

    def __init__(
        self,
        token: str,
        certificate: Certificate,
        *,
        queries: Queries,
        commands: Commands,
        hub: Hub,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        assert token, "an empty token lets everybody in"
        self._token = token.encode()
        self._certificate = certificate
        self._queries = queries
        self._commands = commands
        self._hub = hub
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self._entrance: Entrance | None = None
        self._users: set[web.RequestHandler] = set()
        """The connections that have shown the token, and have perhaps gone since."""
        self._subscribers: set[web.RequestHandler] = set()
        """Likewise those that have subscribed."""

    async def start(self) -> str:
        """Begin to listen; return the address that clients of this machine use, `host:port`.

        Raises:
            OSError: the port is taken, or the host is not this machine's.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guarded])
        app.router.add_get("/status", self._status, allow_head=False)
        app.router.add_get("/metrics", self._show_metrics, allow_head=False)
        app.router.add_get("/history", self._show_history, allow_head=False)
        app.router.add_get("/snapshots", self._show_snapshots, allow_head=False)
        app.router.add_post("/snapshots", self._take_snapshot)
        app.router.add_get(EVENTS, self._send_events, allow_head=False)
        app.router.add_get("/state/{step}", self._show_state, allow_head=False)
        app.router.add_post("/state/{step}", self._show_states)
        app.router.add_get("/done/{step}", self._show_done, allow_head=False)
        app.router.add_post("/stop", self._ask_stop)
        app.router.add_get("/health", self._health, allow_head=False)
        app.router.add_get("/", self._show_page, allow_head=False)
        app.router.add_get("/static/{name}", self._show_page, allow_head=False)
        app.router.add_get("/api/jobs", self._show_jobs, allow_head=False)
        app.router.add_get("/api/job", self._show_job, allow_head=False)
        app.router.add_get("/api/log", self._show_log, allow_head=False)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_silent(),
            handle_signals=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            lingering_time=0,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._entrance = Entrance(listen(self._host, self._port), server, tls=self._certificate.tls)
        self._entrance.open()
        host, port = self._entrance.address
        here = self_address(host)
        return f"[{here}]:{port}" if ":" in here else f"{here}:{port}"

    async def close(self) -> None:
        """Stop listening, and close what connections there are."""
        if self._entrance is not None:
            await self._entrance.close()
        self._hub.end(None)
        if self._runner is not None:
            await self._runner.cleanup()

    # -- what is asked ---------------------------------------------------------------------------------------------

    async def _status(self, _request: web.Request) -> web.Response:
        view = self._queries.view()
        return _not_yet() if view is None else _encoded(view)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._queries.metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _show_history(self, request: web.Request) -> web.Response:
        since_ms = _since_ms(request)
        if isinstance(since_ms, web.Response):
            return since_ms
        history = self._queries.history(since_ms)
        return _not_yet() if history is None else _encoded(history)

    async def _show_snapshots(self, _request: web.Request) -> web.Response:
        return _encoded(self._queries.snapshots())

    async def _send_events(self, request: web.Request) -> web.StreamResponse:
        at_ms = _time_ms(request, "at_ms")
        if isinstance(at_ms, web.Response):
            return at_ms
        last_id = request.headers.get("Last-Event-ID", "")
        try:
            return await send_events(
                request, self._hub, request.query.getall("about", []), at_ms=at_ms, last_id=last_id
            )
        except SubscriptionRefused as error:
            return _says(400, error.what, error.way_out)

    async def _take_snapshot(self, request: web.Request) -> web.Response:
        if self._commands.take is None:
            return _says(409, "this job takes no snapshots", "ask a job that does")
        try:
            asked = msgspec.json.decode(await request.read() or b"{}", type=_Asked)
        except msgspec.MsgspecError as error:
            return _says(400, f"cannot read the body: {error}", 'send {"name": "...", "commit": true}, or nothing')
        try:
            view = self._commands.take(asked.name, asked.commit, asked.key)
        except LowtideError as error:
            return _says(409, error.what, error.way_out)
        return _encoded(view, 202)

    async def _show_state(self, request: web.Request) -> web.Response:
        if self._queries.look is None:
            return _says(409, "this job does not serve its state", "ask a job that takes snapshots")
        step = request.match_info["step"]
        try:
            (answer,) = await self._queries.look(step, [dict(request.query)])
        except LowtideError as error:
            return _says(404, error.what, error.way_out)
        return _encoded({"step": step} | answer)

    async def _show_states(self, request: web.Request) -> web.Response:
        step, look, look_around = request.match_info["step"], self._queries.look, self._queries.look_around
        if look is None or look_around is None:
            return _says(409, "this job does not serve its state", "ask a job that takes snapshots")
        try:
            asked = msgspec.json.decode(await request.read(), type=_AskedState)
        except msgspec.MsgspecError as error:
            way_out = f'send {{"keys": [{{"COLUMN": "VALUE"}}, ...]}}, {MOST_KEYS:,} at most, or {{"limit": 100}}'
            return _says(400, f"cannot read the body: {error}", way_out)
        try:
            if asked.keys is not None:
                return _encoded({"step": step, "keys": await look(step, asked.keys)})
            return _encoded({"step": step} | await look_around(step, asked.unit, asked.limit))
        except LowtideError as error:
            return _says(404, error.what, error.way_out)

    async def _show_done(self, request: web.Request) -> web.Response:
        step, label = request.match_info["step"], request.query.get("label", "")
        try:
            self._hub.check_label(step, label)
            ended_ms = None if self._queries.ended is None else await self._queries.ended(step, label)
        except SubscriptionRefused as error:
            return _says(404, error.what, error.way_out)
        return _encoded({"step": step, "label": label, "ended_ms": ended_ms})

    async def _ask_stop(self, request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read() or b"{}", type=_AskedStop)
        except msgspec.MsgspecError as error:
            return _says(400, f"cannot read the body: {error}", 'send {"hand_over": true}, or nothing')
        if not asked.hand_over:
            LOG.info("%s requested over the control API that the job stop", request.remote)
            self._commands.stop()
            return _encoded({"stopping": True}, 202)
        if self._commands.hand_over is None:
            return _says(409, "this job has no standbys", "stop it without `hand_over`")
        LOG.info("%s requested over the control API that the job be handed over to a standby", request.remote)
        try:
            await self._commands.hand_over()
        except LowtideError as error:
            return _says(409, error.what, error.way_out)
        return _encoded({"stopping": True}, 202)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    # -- the page --------------------------------------------------------------------------------------------------

    async def _show_page(self, request: web.Request) -> web.Response:
        file = page_file(request.match_info.get("name", ""))
        if file is None:
            raise web.HTTPNotFound
        return web.Response(body=file.body, headers={"Content-Type": file.content_type} | page_headers())

    async def _show_jobs(self, _request: web.Request) -> web.Response:
        view = self._queries.view()
        return _not_yet() if view is None else _encoded(jobs_answer(view, time.time_ns() // 1_000_000))

    async def _show_job(self, request: web.Request) -> web.Response:
        since_ms = _since_ms(request)
        if isinstance(since_ms, web.Response):
            return since_ms
        answer = await self._queries.page(since_ms)
        return _not_yet() if answer is None else _encoded(answer)

    async def _show_log(self, request: web.Request) -> web.Response:
        asked = request.query.get("lines", str(LINES))
        if not _COUNT.fullmatch(asked) or int(asked) > MOST_LINES:
            return _says(400, f"lines={asked[:20]} is not a number up to {MOST_LINES:,}", f"ask for ?lines={LINES}")
        return _encoded(await asyncio.to_thread(self._queries.log, int(asked)))

    # -- access ----------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in requests with the token, and turn every failure into JSON; the connection ends with the answer."""
        try:
            response = await self._answer(request, handler)
        except web.HTTPException as error:
            response = _refusal(request, error)
        except Exception:
            LOG.exception("a request to %s failed", request.path)
            response = _says(500, "this is a fault of Lowtide", "the job keeps running; its log has the traceback")
        if response.prepared:  # A stream has sent its headers itself.
            return response
        response.force_close()
        response.headers["Cache-Control"] = "no-store"
        response.headers["Server"] = "lowtide"
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        is_open = request.path in OPEN or request.path.startswith(OPEN_FOLDER)
        if request.match_info.http_exception is None and not is_open:
            if not self._knows_token(request):
                return _says(401, "this needs the job's token", HOW_TO_GET_IN, {"WWW-Authenticate": WHO_IS_ASKED})
            if request.path == EVENTS:  # Its body, if any, is never read.
                room = self._let_subscribe(request.protocol)
                full = f"all {MAX_SUBSCRIBERS} subscriptions are taken", "try again later"
                return await handler(request) if room else _says(503, *full)
            if not self._let_in(request.protocol):
                return _says(503, f"the job is answering {MAX_USERS} other requests", "try again in a second")
            await request.read()
        return await handler(request)

    def _let_in(self, user: web.RequestHandler) -> bool:
        """Count a connection as a user's; return whether there is room for it."""
        assert self._entrance is not None, "it has taken the connection"
        self._entrance.proved(user)
        asyncio.get_running_loop().call_later(CONNECTION_LIMIT_S, _end, user)
        self._users = {each for each in self._users if each.transport is not None}
        room = len(self._users) < MAX_USERS
        if room:
            self._users.add(user)
        return room

    def _let_subscribe(self, user: web.RequestHandler) -> bool:
        """Count a connection as a subscriber's; return whether there is room for it."""
        assert self._entrance is not None, "it has taken the connection"
        self._entrance.proved(user)
        self._subscribers = {each for each in self._subscribers if each.transport is not None}
        room = len(self._subscribers) < MAX_SUBSCRIBERS
        if room:
            self._subscribers.add(user)
        else:
            asyncio.get_running_loop().call_later(CONNECTION_LIMIT_S, _end, user)
        return room

    def _knows_token(self, request: web.Request) -> bool:
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        given = shown.strip().encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._token) and scheme.lower() == "bearer"


class _AskedStop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to stop."""

    hand_over: bool = False


class _AskedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a question for states."""

    keys: Annotated[list[dict[str, str]], msgspec.Meta(max_length=MOST_KEYS)] | None = None
    unit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_KEYS)] = 100


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request for a snapshot."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    commit: bool = True
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


def _end(user: web.RequestHandler) -> None:
    if user.transport is not None:
        user.transport.abort()


def _refusal(request: web.Request, error: web.HTTPException) -> web.Response:
    match error:
        case web.HTTPNotFound():
            return _encoded({"error": f"there is no {request.path[:100]}", "routes": ROUTES}, 404)
        case web.HTTPMethodNotAllowed():
            allowed = error.headers["Allow"]
            return _says(405, f"{request.path} does not support {request.method}", f"use {allowed}", {"Allow": allowed})
        case web.HTTPRequestEntityTooLarge():
            return _says(
                413,
                f"a request's body has at most {MAX_BODY_BYTES} bytes",
                "send a name of 200 characters at most",
            )
    return _says(error.status, error.reason, "GET /routes lists all routes")


def _silent() -> logging.Logger:
    """Return a logger for aiohttp's complaints about clients, which must not fill the job's log."""
    return logging.Logger(f"{__name__}.http", logging.CRITICAL + 1)


def _since_ms(request: web.Request) -> int | web.Response:
    """Return the time after which a request asks, or the answer if it is malformed."""
    found = _time_ms(request, "since_ms")
    return 0 if found is None else found


def _time_ms(request: web.Request, name: str) -> int | web.Response | None:
    """Return the time that a request gives, None if it gives none, or the answer if it is malformed."""
    asked = request.query.get(name)
    if asked is None:
        return None
    if asked.isascii() and asked.isdecimal() and len(asked) <= MAX_TIME_DIGITS:
        return int(asked)
    return _says(400, f"{name} is {asked[:40]!r}, not a time", "give ms since 1970, or leave it out")


def _not_yet() -> web.Response:
    return _says(503, "the job is still starting", "try again in a second")


def _says(status: int, what: str, way_out: str, headers: dict[str, str] | None = None) -> web.Response:
    return _encoded({"error": what, "what_to_do": way_out}, status, headers)


def _encoded(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(content)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)

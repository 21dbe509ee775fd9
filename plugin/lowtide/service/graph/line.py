"""A job's line to the graph's tracker: sends its own progress, and receives that of the jobs before it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import chain

import msgspec

from lowtide.assignment.messages import Malformed, Refused, encode
from lowtide.assignment.setting import GraphSetting
from lowtide.process.credentials import client_tls, plain, secured
from lowtide.process.wire import HEAD, MAX_MESSAGE_BYTES, ConnectionClosed, Kind, head, tune
from lowtide.service.graph.messages import Heard, Say, read_from_graph
from lowtide_snapshots.cause import Cause
from lowtide_tracker.handshake import HELLO_BYTES, NONCE_BYTES, PROOF_BYTES, ClientHandshake, HandshakeError
from lowtide_tracker.job_graph import JobKnown, JobSaid, latest
from lowtide_tracker.tcp import expect_acks

AGAIN_S = 0.5
"""The time until a tracker that is away is asked again."""
ANSWER_WITHIN_S = 10.0


class GraphLine:
    """Keeps a connection to the graph's tracker and reconnects for ever; belongs to the service's event loop.

    What it received stays true while the tracker is away: delivered times only grow, until a job delivers again.

    Args:
        setting: The tracker's address, and what the job reads and writes.
        job: The job's name.
        life: The number of its life.
        on_refused: Called with the cause when the job has no place in the graph.
        on_heard: Called when something new has come.

    Attributes:
        promises: By topic that another job writes, the time before which all of it is durable, None while unknown. As
            long as the graph is not known, all topics count as such. Any thread may read it.
        chain: The jobs that hold this one, line by line, as the tracker last reported.
    """

    def __init__(
        self,
        setting: GraphSetting,
        *,
        job: str,
        life: int,
        on_refused: Callable[[Cause], None],
        on_heard: Callable[[], None] = lambda: None,
    ) -> None:
        self.promises: Mapping[str, int | None] = dict.fromkeys(setting.reads)
        self.chain: list[str] = []
        self._setting = setting
        self._said = JobSaid(
            job=job,
            id=setting.id,
            life=life,
            generation=setting.generation,
            reads=frozenset(setting.reads),
            writes=frozenset(setting.writes),
        )
        self._on_refused = on_refused
        self._on_heard = on_heard
        self._heard: dict[str, JobKnown] = {}
        self._known = False
        self._writer: asyncio.StreamWriter | None = None
        self._away = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start connecting."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End the connection: the graph then knows that the job does not run."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def missing(self) -> list[str]:
        """The jobs of `[tracker] after` that have not reported yet."""
        return [job for job in self._setting.after if job not in self._heard]

    @property
    def through_ms(self) -> int | None:
        """Return the time before which all that the jobs before this one write is durable; None while unknown."""
        if not self._known or self.missing:
            return None
        times = [known.delivered_ms for known in self._heard.values()]
        reported = [each for each in times if each is not None]
        return min(reported, default=1 << 62) if len(reported) == len(times) else None

    @property
    def trouble(self) -> str:
        """The fault, since when and what to do; empty if there is none."""
        if self._away:
            return self._away
        if self.missing:
            return (
                f"job {', '.join(self.missing)} ([tracker] after) has not reported, so nothing is delivered that "
                "must wait for it: start it or, if it is retired or writes nothing for this job, remove it from after"
            )
        dead = [known for known in self._heard.values() if not known.runs]
        if dead:
            one = dead[0]
            return (
                f"job {one.job}, which this one waits for, is not running; its delivered time is "
                f"{one.delivered_ms} ms: start it or, if it is retired, run: lowtide tracker forget {one.job}"
            )
        return ""

    def say(self, *, delivered_ms: int | None, min_time_ms: int | None, holder: str, held_topic: str) -> None:
        """Send the job's progress, if it has changed."""
        said = msgspec.structs.replace(
            self._said, delivered_ms=delivered_ms, min_time_ms=min_time_ms, holder=holder, held_topic=held_topic
        )
        if said != self._said:
            self._said = said
            self._send()

    def _send(self) -> None:
        if self._writer is not None:
            message = encode(Say(msgspec.structs.replace(self._said, heard=tuple(self._heard.values()))))
            self._writer.write(head(Kind.ASK, len(message)) + message)

    async def _run(self) -> None:
        while True:
            why = "the tracker closed the connection"
            try:
                await self._talk()
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ConnectionClosed) as error:
                why = str(error) or type(error).__name__
            except (HandshakeError, Malformed) as error:
                why = f"{error}; give both the same secret ([tracker].secret_file) and the same version of Lowtide"
            finally:
                writer, self._writer = self._writer, None
                if writer is not None:
                    writer.close()
            if not self._away:
                self._away = (
                    f"since {datetime.now(UTC):%H:%M:%S} UTC: the graph's tracker at {self._setting.address} does not "
                    f"answer ({why}): records that wait for other jobs are held; start it: lowtide tracker"
                )
            await asyncio.sleep(AGAIN_S)

    async def _talk(self) -> None:
        address, secret = self._setting.address, self._setting.secret.encode()
        host, _, port = plain(address).rpartition(":")
        async with asyncio.timeout(ANSWER_WITHIN_S):
            tls = client_tls(secret) if secured(address) else None
            reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
            self._writer = None
            try:
                connection = writer.get_extra_info("socket")
                tune(connection)
                expect_acks(connection)
                shake = ClientHandshake(secret, os.urandom(NONCE_BYTES))
                hello = await reader.readexactly(HELLO_BYTES)
                writer.write(shake.reply(hello))
                try:
                    proof = await reader.readexactly(PROOF_BYTES)
                except asyncio.IncompleteReadError as error:
                    # A peer without the secret is sent away without an answer.
                    raise HandshakeError("it refuses this job's secret") from error
                shake.check(hello, proof)
            except BaseException:
                writer.close()
                raise
        self._writer = writer
        self._send()
        while True:
            length, _ = HEAD.unpack(await reader.readexactly(HEAD.size))
            if not 1 <= length <= MAX_MESSAGE_BYTES:
                raise ConnectionClosed(f"the peer announced a message of {length} bytes")
            message = read_from_graph(await reader.readexactly(length - 1))
            if isinstance(message, Refused):
                self._refused(message.cause)
            elif isinstance(message, Heard):
                self._hear(message)

    def _refused(self, why: str) -> None:
        self._on_refused(
            Cause(
                "other", f"the job has no place in the graph: {why}", f"the graph's tracker at {self._setting.address}"
            )
        )
        assert self._task is not None, "only the task calls it"
        self._task.cancel()

    def _hear(self, message: Heard) -> None:
        heard = {}
        for known in message.jobs:
            # A replacement of a dead tracker may know less.
            before = self._heard.get(known.job)
            heard[known.job] = known if before is None else latest(known, before)
        self._heard, self.chain, self._known, self._away = heard, message.chain, True, ""
        reads = set(self._setting.reads)
        if self.missing:
            self.promises = dict.fromkeys(self._setting.reads)
        else:
            self.promises = dict(
                chain.from_iterable(
                    ((topic, known.delivered_ms) for topic in known.writes & reads) for known in heard.values()
                )
            )
        self._on_heard()

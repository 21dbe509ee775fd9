"""The tracker of a graph of jobs as a process: takes each job's progress and passes it to the jobs after it at once.

It keeps nothing on disk: jobs send all of their state again to a process that takes its place.
"""

from __future__ import annotations

import asyncio
import logging

from lowtide.assignment.messages import Done, Malformed, Refused
from lowtide.process.credentials import server_tls
from lowtide.service.graph.messages import Forget, Heard, Look, Say, Whole, read_by_graph
from lowtide.service.reception import receive_on
from lowtide.service.workers.peer import Peer
from lowtide_tracker.entrance import Entrance, listen
from lowtide_tracker.job_graph import JobGraph, JobGraphError, JobSaid

LOG = logging.getLogger(__name__)
SETTLE_S = 2.0
"""The time after the start without answers: jobs that ran before must report first, as they limit what others write."""


class GraphServer:
    """Serves one graph; belongs to an event loop.

    Args:
        secret: The secret of all jobs of the graph.
        settle_s: See `SETTLE_S`.
        tls: True to listen under TLS.
    """

    def __init__(self, secret: bytes, *, settle_s: float = SETTLE_S, tls: bool = False) -> None:
        self.graph = JobGraph()
        self._secret = secret
        self._tls = server_tls(secret) if tls else None
        self._settle_s = settle_s
        self._settled = False
        self._peers: dict[str, Peer] = {}
        self._sent: dict[str, Heard] = {}
        """The last message to each job."""
        self._entrance: Entrance | None = None
        self._timer: asyncio.TimerHandle | None = None

    def serve(self, host: str, port: int = 0) -> tuple[str, int]:
        """Start listening; return the address (errors: OSError)."""
        self._entrance = receive_on(listen(host, port), self._secret, self._talk, self._tls)
        self._timer = asyncio.get_running_loop().call_later(self._settle_s, self._settle)
        return self._entrance.address

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._timer is not None:
            self._timer.cancel()
        if self._entrance is not None:
            await self._entrance.close()
        for peer in list(self._peers.values()):
            peer.close()

    def _settle(self) -> None:
        self._settled = True
        self._send()

    async def _talk(self, peer: Peer) -> None:
        said: JobSaid | None = None
        try:
            while True:
                _, payload = await peer.receive()
                try:
                    message = read_by_graph(payload)
                    if isinstance(message, Say):
                        said = message.said
                    await self._hear(peer, message)
                except (Malformed, JobGraphError) as error:
                    LOG.warning("%s", error)
                    await peer.answer(Refused(str(error)))
        finally:
            if said is not None and self._peers.get(said.job) is peer:
                del self._peers[said.job]
                self._sent.pop(said.job, None)
                self.graph.gone(said.job, said.life)
                LOG.warning("job %s (life %d) disconnected", said.job, said.life)
                self._send()

    async def _hear(self, peer: Peer, message: Say | Look | Forget) -> None:
        match message:
            case Say(said):
                self.graph.say(said)
                before = self._peers.get(said.job)
                if before is not peer:
                    LOG.info("job %s (life %d) connected", said.job, said.life)
                    self._peers[said.job] = peer
                    self._sent.pop(said.job, None)
                    if before is not None:
                        before.close()
                self._send()
            case Look():
                jobs = self.graph.jobs
                chains = {known.job: self.graph.chain(known.job) for known in jobs}
                await peer.answer(Whole(jobs=jobs, chains=chains, delivered_ms=self.graph.delivered_ms))
            case Forget(job):
                self.graph.forget(job)
                await peer.answer(Done())
                self._send()

    def _send(self) -> None:
        """Send each job the news of those before it; O(jobs * jobs)."""
        if not self._settled:
            return
        for job, peer in list(self._peers.items()):
            heard = Heard(self.graph.before(job), self.graph.chain(job))
            if heard != self._sent.get(job):
                self._sent[job] = heard
                peer.post(heard)

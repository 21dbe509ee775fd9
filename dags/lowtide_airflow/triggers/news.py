"""Waits in the triggerer for news of a job over its control API, so that a trigger need not poll meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp

from lowtide_snapshots.errors import ControlUnreachable
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_snapshots.job.news import END, LIFE, SILENCE_S, NewsReader, events_path

__all__ = ["wait_for_news"]


async def wait_for_news(at: ControlAddress, token: str, about: Sequence[str], at_ms: int) -> bool:
    """Wait until a life sends that a subject has reached a moment: True; or that it has ended: False.

    The certificate is checked before the token is sent.

    Raises:
        ControlUnreachable: the connection was refused or lost, or the answer is none that can be used.
        AddressUnproven: the address is not shown to be the job's; nothing was opened.
    """
    at.check(token)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)
    shown = {"Authorization": f"Bearer {token}"}
    reader = NewsReader()
    try:
        pinned = aiohttp.Fingerprint(bytes.fromhex(at.certificate))
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"https://{at.address}{events_path(about, at_ms)}", headers=shown, ssl=pinned) as answer,
        ):
            if answer.status != 200:
                raise _lost(at, f"it answered {answer.status}: {(await answer.text())[:200]}")
            async for line in answer.content:
                news = reader.read(line)
                if news is not None and news.kind != LIFE:
                    return news.kind != END
    except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
        raise _lost(at, str(error) or type(error).__name__) from error
    raise _lost(at, "the connection ended before the news")


def _lost(at: ControlAddress, why: str) -> ControlUnreachable:
    return ControlUnreachable(
        f"no subscription to the job: {why}",
        where=at.address,
        way_out="the job is polled instead; to subscribe, make it reachable from this machine: set the job's "
        "[control].host and port",
    )

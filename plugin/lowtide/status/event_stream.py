"""Sends a subscription's news as server-sent events, over one connection of the control API."""

from __future__ import annotations

import asyncio

from aiohttp import web

from lowtide.status.subscriptions import Hub
from lowtide_snapshots.job.news import SILENCE_S

WRITE_LIMIT_S = 10.0
"""Time for which a client may read nothing."""
COMMENT = b":\n\n"


async def send_events(
    request: web.Request, hub: Hub, about: list[str], *, at_ms: int | None, last_id: str
) -> web.StreamResponse:
    """Answer a request with a stream that lasts until the subscription is over or the client is gone.

    Raises:
        SubscriptionRefused: before anything is sent.
    """
    woken = asyncio.Event()
    subscription = hub.subscribe(about, at_ms=at_ms, last_id=last_id, wake=woken.set)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    response.force_close()
    try:
        await response.prepare(request)
        while not subscription.is_over:
            woken.clear()
            news = subscription.take()
            if not news and await _sleeps(woken):
                continue
            async with asyncio.timeout(WRITE_LIMIT_S):
                await response.write(b"".join(each.encoded() for each in news) or COMMENT)
        async with asyncio.timeout(WRITE_LIMIT_S):
            await response.write_eof()
    except (OSError, TimeoutError):
        if request.transport is not None:  # It is gone, or reads nothing: it continues after its last id.
            request.transport.abort()
    finally:
        subscription.close()
    return response


async def _sleeps(woken: asyncio.Event) -> bool:
    """Wait until the hub has something; return False if it is time for a comment."""
    try:
        async with asyncio.timeout(SILENCE_S / 3):
            return await woken.wait()
    except TimeoutError:
        return False

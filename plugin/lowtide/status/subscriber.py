"""A subscriber to a job: follows it from life to life, and gives each piece of news once and in order.

for news in follow(lambda: control_of(conf, "index"), ["delivered"], at_ms=noon_ms):
print(news.time_ms)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from lowtide.errors import LowtideError, NotRunning, ServiceUnavailable
from lowtide.status.control_client import ControlClient
from lowtide_snapshots.errors import TokenRefused
from lowtide_snapshots.job.news import END, News

AGAIN_S = 0.5
PATIENCE_S = 30.0
"""For how long a token that is refused is not final after a life's end: the next life may have another one."""


class NotYet(LowtideError):
    """Wait again, or look what holds the job up: it has not come so far in time."""

    exit_code = 6


def follow(
    find: Callable[[], ControlClient],
    about: Sequence[str],
    *,
    at_ms: int | None = None,
    last_id: str = "",
    limit_s: float | None = None,
) -> Iterator[News]:
    """Give the news of a job; a lost connection, and a life that ends for a cause, are waited out.

    It ends when each subject has come to `at_ms`, or, after the news that says so, when the job was stopped.

    Args:
        find: Returns the control API of the job's present life; asked again after each loss.
        about: The subjects, as `Hub.subscribe` takes them.
        at_ms: Tell of each subject once: when it has come to this moment.
        last_id: The id of the last news that the subscriber has had, from an earlier call.
        limit_s: How long to wait for all of it; None for ever.

    Raises:
        NotYet: the limit is over.
        ControlRefused, TokenRefused: the job has no such subject, or refuses the token.
        NotRunning, ServiceUnavailable: the job could not be found at first.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    waiting, why, lost_s = set(about), "", 0.0
    ended: int | None = None
    """The life whose end was reported last: it may stay for a while and report it again."""
    connected = False
    while True:
        try:
            for news in find().listen(about, at_ms=at_ms, last_id=last_id, until_s=deadline):
                connected, why, lost_s = True, "", 0.0
                last_id = news.id
                waiting.discard(str(news.data.get("about")))
                if news.kind == END:
                    why = f"life {news.incarnation} has ended: {news.data.get('cause')}"
                    if news.incarnation == ended:
                        continue
                    ended = news.incarnation
                yield news
                if news.kind == END and news.data.get("cause") is None:
                    return
            if at_ms is not None and not waiting:
                return
        except (NotRunning, ServiceUnavailable, TokenRefused) as error:
            lost_s = lost_s or time.monotonic()
            final = isinstance(error, TokenRefused) and time.monotonic() - lost_s > PATIENCE_S
            if not connected or final:
                raise
            why = error.what
        if deadline is not None and time.monotonic() > deadline:
            missing = ", ".join(each for each in about if each in waiting) or ", ".join(about)
            raise NotYet(
                f"{limit_s:g} s have passed without news about {missing}" + (f": {why}" if why else ""),
                way_out="`lowtide status` shows the job's progress, and what holds it; then wait again",
            )
        time.sleep(AGAIN_S)

"""The hub of subscriptions: tells subscribers, once and in order, how far a job has come.

    hub = Hub(incarnation=3, slack_ms=2, start_ms=None, segments={1: "last", 2: "index"})
    subscription = hub.subscribe(["delivered", "segment:index"], at_ms=1_767_323_100_000)
    hub.reached("delivered", tick)
    subscription.take()

It has no clock, socket or loop. Its news are times that only grow, so a slow subscriber needs no queue: only the newest
time, and the commits after its position. One that waits for a moment costs nothing until that moment is passed.

Law: of each subject a subscriber gets ascending times, none twice, over any number of lives and connections, if it
sends the id of its last news. Only commits may begin again below, after a rewind that has dropped those above: each of
the new ones is news, too.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from lowtide.core.fronts.floors import LAST_TICK
from lowtide.errors import LowtideError
from lowtide.flow.steps.labels import label_columns
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.job.news import COMMIT, DELIVERED, DONE, END, LIFE, MIN_TIME, SEGMENT, News

MAX_SUBJECTS = 64
MAX_LABEL_CHARACTERS = 1_000
KEPT_COMMITS = 10_000
SPARE_WAITERS = 64
BATCH = 256
"""Number of commits sent at once."""
END_MS = LAST_TICK
"""The end of time: every source has ended."""
BEFORE_ALL = -1


class SubscriptionRefused(LowtideError):
    """Subscribe to something else: this job has no such subject, or the id is not one that it gave."""


class Hub:
    """The news of a life and its subscribers; belongs to one thread.

    Args:
        incarnation: The life's number.
        slack_ms: The length of a tick.
        start_ms: The time at which the life begins: segments go back to it. None if it begins with nothing.
        segments: Names by number, as `JobShape.segments` has them.
        labels: The columns of its labels by `when_done`, as `JobShape.labels` has them.

    Attributes:
        on_label: Called when a subscriber comes that waits for a label's end.
        on_listener: Called when a subscriber comes that waits for delivered time, or for what depends on it.
    """

    def __init__(
        self,
        *,
        incarnation: int,
        slack_ms: int,
        start_ms: int | None,
        segments: Mapping[int, str],
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.incarnation = incarnation
        self._slack_ms = slack_ms
        self._start_ms = start_ms
        self._segments = dict(segments)
        self._labels = dict(labels or {})
        self.on_label: Callable[[], None] = lambda: None
        self.on_listener: Callable[[], None] = lambda: None
        self._waited: Counter[str] = Counter()
        """By the subject of a label, its number of subscriptions: it is known as long as there is one."""
        self._reached: dict[str, int] = {}
        """By subject the newest time in ms."""
        self._commits: list[Commit] = []
        """Ascending."""
        self._followers: dict[str, set[Subscription]] = {}
        """By subject, the subscriptions to every step."""
        self._waiters: dict[str, list[tuple[int, int, Subscription]]] = {}
        """By subject, a heap of the subscriptions to a moment: (moment, number, subscription)."""
        self._numbers = count()
        self._all: set[Subscription] = set()
        self.ended = False
        """True if the life is over."""
        self._cause: Cause | None = None

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._all)

    # -- what the service tells ------------------------------------------------------------------------------------

    def reached(self, subject: str, tick: int) -> None:
        """Note that a subject's time has come to a tick, if that is above the last one. O(its subscriptions)."""
        if tick <= 0:
            return  # Before the first record nothing is known.
        self._advance(subject, END_MS if tick >= LAST_TICK else tick * self._slack_ms)

    def segments_reached(self, min_times: Mapping[int, int], global_min: int) -> None:
        """The tracker has reported: min time by segment, and the whole job's."""
        for segment, tick in min_times.items():
            self.reached(f"{SEGMENT}:{segment}", tick)
        self.reached(MIN_TIME, global_min)

    def committed(self, commits: Iterable[Commit]) -> None:
        """These are the job's commits; those above the last one known are news."""
        last = self._commits[-1].tick if self._commits else -1
        new = sorted((each for each in commits if each.tick > last), key=lambda each: each.tick)
        if new:
            self._commits += new
            del self._commits[:-KEPT_COMMITS]
            self._advance(COMMIT, self._time_ms(new[-1]))

    def end(self, cause: Cause | None) -> None:
        """The life is over; None if it was ended on purpose."""
        if not self.ended:
            self.ended, self._cause = True, cause
            for each in list(self._all):
                each.wake()

    def _advance(self, subject: str, time_ms: int) -> None:
        if time_ms <= self._reached.get(subject, BEFORE_ALL):
            return
        self._reached[subject] = time_ms
        for follower in list(self._followers.get(subject, ())):
            follower.wake()
        waiters = self._waiters.get(subject, [])
        while waiters and waiters[0][0] <= time_ms:
            subscription = heapq.heappop(waiters)[2]
            if subscription in self._all:
                subscription.wake()

    # -- what subscribers ask --------------------------------------------------------------------------------------

    def subscribe(
        self,
        subjects: Sequence[str],
        *,
        at_ms: int | None = None,
        last_id: str = "",
        wake: Callable[[], None] = lambda: None,
    ) -> Subscription:
        """Begin to tell of subjects.

        Args:
            subjects: Of "delivered", "commit", "min_time", "segment:STEP", "segment:NUMBER" and "done:STEP:LABEL".
            at_ms: Tell of each subject once: when it reaches this moment. None for every step.
            last_id: The id of the last news about these subjects that the subscriber has; empty for none.
            wake: Called when `take` may have something; sometimes in vain.

        Raises:
            SubscriptionRefused: the job has no such subject.
        """
        if not 1 <= len(subjects) <= MAX_SUBJECTS or len(set(subjects)) < len(subjects):
            raise SubscriptionRefused(
                f"a subscription names 1 to {MAX_SUBJECTS} different subjects, but this one names {len(subjects)}",
                way_out="name each of them once: `about=delivered`, `commit`, `min_time`, `segment:STEP` or "
                "`done:STEP:LABEL`",
            )
        known = [self._subject(each) for each in subjects]
        subscription = Subscription(self, subjects, known, at_ms, self._position(last_id, known), wake)
        self._all.add(subscription)
        labels = [subject for subject in known if subject.startswith(f"{DONE}:")]
        self._waited.update(labels)
        for subject in known:
            if at_ms is None:
                self._followers.setdefault(subject, set()).add(subscription)
            elif self._reached.get(subject, BEFORE_ALL) < at_ms:
                heapq.heappush(self._waiters.setdefault(subject, []), (at_ms, next(self._numbers), subscription))
        if labels:
            self.on_label()
        if labels or DELIVERED in known:
            self.on_listener()
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """A subscriber is gone."""
        if subscription not in self._all:
            return
        self._all.discard(subscription)
        for subject in subscription.known:
            self._followers.get(subject, set()).discard(subscription)
            waiters = self._waiters.get(subject, [])
            if len(waiters) > 2 * len(self._all) + SPARE_WAITERS:  # Most of them are gone.
                waiters[:] = [each for each in waiters if each[2] in self._all]
                heapq.heapify(waiters)
            if subject in self._waited:
                self._waited[subject] -= 1
                if not self._waited[subject]:
                    for known in (self._waited, self._reached, self._followers, self._waiters):
                        known.pop(subject, None)

    def listens(self, by_ms: int) -> bool:
        """True if a subscriber needs a delivered time up to a moment at once; one that waits for a later one does not.

        The end of a label is published once delivered, so a waiter for one needs every delivered time. O(1).
        """
        waiters = self._waiters.get(DELIVERED, [])
        while waiters and waiters[0][2] not in self._all:
            heapq.heappop(waiters)
        waits = bool(waiters) and waiters[0][0] <= by_ms
        return waits or bool(self._followers.get(DELIVERED)) or bool(self._waited)

    @property
    def labels_waited_for(self) -> dict[str, list[str]]:
        """By `when_done` the labels that subscribers wait for the end of."""
        found: dict[str, list[str]] = {}
        for subject in self._waited:
            _, step, label = subject.split(":", 2)
            found.setdefault(step, []).append(label)
        return found

    def _subject(self, asked: str) -> str:
        if asked in (DELIVERED, COMMIT, MIN_TIME):
            return asked
        kind, _, name = asked.partition(":")
        if kind == DONE:
            self.check_label(*name.partition(":")[::2])
            return asked  # A label is called as it is asked for.
        if kind == SEGMENT:
            for number, steps in self._segments.items():
                if name == str(number) or name in steps.split(", "):
                    return f"{SEGMENT}:{number}"
            there = "; ".join(f"{number}: {steps}" for number, steps in sorted(self._segments.items()))
            raise SubscriptionRefused(
                f"no segment of this job has the number or the step {name[:100]!r}",
                way_out=f"its segments and their steps are {there}",
            )
        raise SubscriptionRefused(
            f"there is no subject {asked[:100]!r}",
            way_out=f"subscribe to {DELIVERED}, {COMMIT}, {MIN_TIME}, {SEGMENT}:STEP or {DONE}:STEP:LABEL",
        )

    def check_label(self, step: str, label: str) -> None:
        """Refuse an impossible label.

        Raises:
            SubscriptionRefused: the step has no labels, or none such.
        """
        if step not in self._labels:
            there = ", ".join(sorted(self._labels))
            raise SubscriptionRefused(
                f"no when_done with labels of this job is called {step[:100]!r}",
                way_out=f"its labels are those of {there}" if there else "give the flow's when_done a label=",
            )
        kinds = self._labels[step]
        texts = label_columns(list(kinds), label) if 0 < len(label) <= MAX_LABEL_CHARACTERS else None
        if texts is None or any(kinds[name] == "int" and not _is_int(text) for name, text in texts.items()):
            one = len(kinds) == 1
            said = kinds.values() if one else (f"{name} ({kind})" for name, kind in kinds.items())
            value = "a value of its column as text" if one else "a JSON object of its columns, their values as text"
            raise SubscriptionRefused(
                f'{label[:100]!r} is not a label of "{step}", whose labels are {", ".join(said)}',
                way_out=f"write {DONE}:{step}:LABEL, with {value}",
            )

    def _position(self, last_id: str, known: Sequence[str]) -> _Position:
        if not last_id:
            return _Position(None, [BEFORE_ALL] * len(known))
        parts = last_id.split(".")
        if not all(part.isascii() and part.isdecimal() and len(part) <= 20 for part in parts if part):
            parts = []
        if len(parts) != 1 + len(known) or not parts[0]:
            raise SubscriptionRefused(
                f"{last_id[:100]!r} is not the id of news about these subjects",
                way_out="send the id of the last news with the same subjects in the same order, or none to start over",
            )
        if int(parts[0]) > self.incarnation:
            raise SubscriptionRefused(
                f"the id is from life {parts[0]}, but this is life {self.incarnation}, which is older",
                way_out="ask the job's current life: `lowtide status` shows its address",
            )
        position = _Position(int(parts[0]), [int(part) if part else BEFORE_ALL for part in parts[1:]])
        if COMMIT in known and int(parts[0]) < self.incarnation:
            number = known.index(COMMIT)
            position.last_ms[number] = min(position.last_ms[number], self._before_later_lives(int(parts[0])))
        return position

    def _before_later_lives(self, incarnation: int) -> int:
        """The time before all commits of later lives: after a rewind they begin below those that it has dropped."""
        newest = self._time_ms(self._commits[-1]) if self._commits else BEFORE_ALL
        return min([newest, *(self._time_ms(each) - 1 for each in self._commits if each.incarnation > incarnation)])

    # -- what there is to tell -------------------------------------------------------------------------------------

    def news(self, subject: str, after_ms: int, at_ms: int | None) -> list[tuple[int, dict[str, object]]]:
        """Return the news of a subject that a subscriber lacks: times in ms with their data, ascending."""
        if subject != COMMIT:
            time_ms = self._reached.get(subject, BEFORE_ALL)
            return [(time_ms, {})] if time_ms > after_ms and time_ms >= (at_ms or 0) else []
        first = bisect_right(self._commits, after_ms, key=self._time_ms)
        new = [each for each in self._commits[first:] if self._time_ms(each) >= (at_ms or 0)]
        return [(self._time_ms(each), _said_of(each)) for each in new[: BATCH if at_ms is None else 1]]

    def _time_ms(self, commit: Commit) -> int:
        return commit.tick * self._slack_ms

    @property
    def start_ms(self) -> int | None:
        """The time at which the life begins, in ms; None if it begins with nothing."""
        return self._start_ms

    @property
    def cause(self) -> Cause | None:
        """The cause of the life's end."""
        return self._cause


def news_of(commit: Commit) -> News:
    """Return a commit as the life that took it tells subscribers, but for the id: nobody goes on after it."""
    data = {"incarnation": commit.incarnation, "about": COMMIT, "time_ms": commit.min_time_ms}
    return News(COMMIT, "", data | _said_of(commit))


def _said_of(commit: Commit) -> dict[str, object]:
    return {"snapshot": commit.id, "name": commit.name, "taken_by": commit.incarnation}


def _is_int(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal()


@dataclass(slots=True)
class _Position:
    """The position of a subscriber: the life of its last news, and by subject the last time in ms."""

    incarnation: int | None
    last_ms: list[int]

    def id(self) -> str:
        return ".".join([str(self.incarnation), *("" if each == BEFORE_ALL else str(each) for each in self.last_ms)])


class Subscription:
    """One subscriber's view of a hub.

    Attributes:
        asked: The subjects, as they were asked for.
        known: The same, as the hub calls them.
        is_over: True if no more news comes.
        wake: Called by the hub.
    """

    def __init__(
        self,
        hub: Hub,
        asked: Sequence[str],
        known: Sequence[str],
        at_ms: int | None,
        position: _Position,
        wake: Callable[[], None],
    ) -> None:
        self.asked = tuple(asked)
        self.known = tuple(known)
        self.is_over = False
        self.wake = wake
        self._hub = hub
        self._at_ms = at_ms
        self._position = position

    def take(self) -> list[News]:
        """Return the news since the last call, in order; of a time that has moved several times the newest.

        Call it again until it has nothing: of many commits it gives some.
        """
        hub, position = self._hub, self._position
        if self.is_over:
            return []
        taken: list[News] = []
        if position.incarnation != hub.incarnation:
            position.incarnation = hub.incarnation
            taken.append(self._said(LIFE, {"begins_at_ms": hub.start_ms}))
        found = [
            (time_ms, number, said)
            for number, subject in enumerate(self.known)
            if not self._has_come(number)
            for time_ms, said in hub.news(subject, position.last_ms[number], self._at_ms)
        ]
        for time_ms, number, said in sorted(found, key=lambda each: each[:2]):
            position.last_ms[number] = time_ms
            known_ms = None if time_ms == END_MS else time_ms
            kind = self.known[number].partition(":")[0]
            taken.append(self._said(kind, {"about": self.asked[number], "time_ms": known_ms} | said))
        if all(self._has_come(number) for number in range(len(self.known))):
            self.is_over = True
        elif hub.ended and len(found) < BATCH:
            self.is_over = True
            taken.append(self._said(END, {"cause": None if hub.cause is None else str(hub.cause)}))
        return taken

    def close(self) -> None:
        """End the subscription."""
        self._hub.forget(self)

    def _has_come(self, number: int) -> bool:
        return self._at_ms is not None and self._position.last_ms[number] >= self._at_ms

    def _said(self, kind: str, data: dict[str, object]) -> News:
        return News(kind, self._position.id(), {"incarnation": self._hub.incarnation} | data)

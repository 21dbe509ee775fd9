"""What is done to a cluster's hosts is drawn from a seed."""

from __future__ import annotations

import json

import pytest
from hosts_chaos.attacks import NOTICED
from hosts_chaos.run import Result
from hosts_chaos.schedule import BETWEEN, KINDS, LINKS, WAYS, schedule

from lowtide.core.frames import VERSION, FrameKind, Head, Inbox
from lowtide.errors import LifeEnded
from lowtide.worker.seals import Seals

HOSTS = {
    "driver": ["driver"],
    "worker": ["worker-1", "worker-2"],
    "kafka": ["kafka-1", "kafka-2", "kafka-3"],
    "zookeeper": ["zookeeper-1", "zookeeper-2", "zookeeper-3"],
    "store": ["store"],
}


def test_a_seed_draws_the_same_faults_again_and_another_one_others() -> None:
    assert schedule(1, 40, HOSTS) == schedule(1, 40, HOSTS)
    assert schedule(1, 40, HOSTS) != schedule(2, 40, HOSTS)


def test_all_kinds_come_once_before_one_comes_twice() -> None:
    drawn = [fault.kind for fault in schedule(3, 2 * len(KINDS), HOSTS)]
    assert sorted(drawn[: len(KINDS)]) == sorted(KINDS)
    assert sorted(drawn[len(KINDS) :]) == sorted(KINDS)
    assert {fault.kind for fault in schedule(3, 5, HOSTS, only=["worker-lost"])} == {"worker-lost"}


@pytest.mark.parametrize("seed", range(20))
def test_a_link_has_two_ends_and_comes_back(seed: int) -> None:
    for fault in schedule(seed, 100, HOSTS):
        assert fault.host != fault.other
        if fault.kind in LINKS:
            assert fault.way in WAYS
            assert 0 < fault.lasts_s <= 30


@pytest.mark.parametrize("seed", range(20))
def test_somebody_stands_between_two_hosts_of_the_same_job(seed: int) -> None:
    for fault in schedule(seed, 40, HOSTS, only=list(BETWEEN)):
        assert {fault.host, fault.other} <= {"driver", "worker-1", "worker-2"}
        assert fault.host != fault.other
        assert fault.lasts_s == 0, "it is over when it was noticed"
        assert str(fault) == f"{fault.kind} ({fault.host} and {fault.other})"


def result(**found: object) -> Result:
    return Result(**{"lost": 0, "duplicated": 0, "out_of_order": 0, **found})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "right"),
    [({}, True), ({"lost": 1}, False), ({"lost": None}, False), ({"failures": ["a customer was found"]}, False)],
)
def test_a_run_is_right_only_if_nothing_went_wrong(found: dict[str, object], right: bool) -> None:
    assert result(**found).right is right


def test_the_last_line_counts_packets_and_markers() -> None:
    known = json.loads(result(packets=7, markers={"a frame": 0}).line())
    assert (known["packets"], known["packets_missed"], known["markers"]) == (7, 0, {"a frame": 0})


def test_what_a_log_says_of_a_changed_frame_names_its_edge() -> None:
    """In the words of the product, which this pins."""
    own, other = Seals(b"secret", ("job", "id", 1), 0, 0, "0-0"), Seals(b"secret", ("job", "id", 1), 1, 1, "1-1")
    forged = bytearray(own.seal(1, 0, 7, b"a frame"))
    forged[-1] ^= 1
    with pytest.raises(LifeEnded) as caught:
        other.open(bytes(forged))
    assert NOTICED["frame"].search(str(caught.value))
    inbox, head = Inbox("1-1"), Head(VERSION, FrameKind.RECORDS, 0, 3, 0, 0, 0, [], [], [], None)
    inbox.take(head)
    with pytest.raises(LifeEnded) as caught:
        inbox.take(head)
    assert NOTICED["repeat"].search(str(caught.value))

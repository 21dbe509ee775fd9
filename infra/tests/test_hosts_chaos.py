"""What is done to a cluster's hosts is drawn from a seed."""

from __future__ import annotations

import pytest
from hosts_chaos.schedule import KINDS, WAYS, schedule

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
        if fault.other:
            assert fault.way in WAYS
            assert 0 < fault.lasts_s <= 30

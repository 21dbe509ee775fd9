"""Whose nodes a job's are, on a real ZooKeeper: with a password it starts only where nobody else may change them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from lowtide_snapshots.errors import NodesOpen, ZooKeeperRefused
from lowtide_snapshots.job.record import JobRecord

pytestmark = pytest.mark.zookeeper

AUTH = "user:right"
OTHERS = {"create": 4, "write": 2, "delete": 8, "admin": 16}


class Anybody:
    """Another client of the ZooKeeper, without a password unless given one."""

    def __init__(self, client: Any, place: Any, root: str) -> None:
        self.client = client
        self.root = root
        self.jobs = f"/{root}/jobs"
        self.job = f"{self.jobs}/{place.job}"

    def make(self, path: str, *entries: tuple[str, str, int]) -> None:
        """Make a node, with those above it, to which these may do what."""
        from kazoo.security import ACL, Id

        self.client.create(path, b"", acl=[ACL(perms, Id(scheme, name)) for scheme, name, perms in entries])

    def close(self, path: str, *entries: tuple[str, str, int]) -> None:
        """`addauth` and `setAcl -R`."""
        from kazoo.security import ACL, CREATOR_ALL_ACL, Id

        self.client.add_auth("digest", AUTH)
        self.client.set_acls(path, [*CREATOR_ALL_ACL, *(ACL(perms, Id(*who)) for *who, perms in entries)])
        for name in [] if entries else self.client.get_children(path):
            self.close(f"{path}/{name}")


ANYONE = ("world", "anyone")
ALL = (*ANYONE, 31)
USUAL = (*ANYONE, 5)


@pytest.fixture(name="anybody")
def _anybody(place: Any) -> Iterator[Anybody]:
    from kazoo.client import KazooClient

    client = KazooClient(place.hosts)
    client.start()
    yield Anybody(client, place, f"root-{uuid.uuid4().hex[:8]}")
    client.stop()
    client.close()


def start(place: Any, root: str, auth: str | None = AUTH) -> int:
    store = place.open(auth=auth, root=root)
    store.freeze(JobRecord(place.job, 10, 128, 4, "log", 1, ("documents=docs",)))
    life: int = place.living(store)
    store.close()
    return life


def test_a_jobs_node_that_somebody_else_made_first_is_refused_until_it_is_closed(place: Any, anybody: Anybody) -> None:
    """Attack: `/lowtide/jobs` is open for all to make nodes in, and who owns a job's node may delete all in it."""
    anybody.make(f"/{anybody.root}", ALL)
    anybody.make(anybody.jobs, ALL)
    anybody.close(f"/{anybody.root}", USUAL)
    anybody.close(anybody.jobs, USUAL)
    anybody.make(anybody.job, ALL)
    with pytest.raises(NodesOpen) as refused:
        start(place, anybody.root)
    assert refused.value.where == anybody.job
    assert "world:anyone has create, write, delete, admin" in refused.value.what
    assert f"`setAcl -R {anybody.job} auth::cdrwa`" in refused.value.way_out
    anybody.close(anybody.job)
    assert [start(place, anybody.root), start(place, anybody.root)] == [1, 2]


def test_nodes_that_were_made_without_a_password_are_refused_with_one(place: Any, anybody: Anybody) -> None:
    assert start(place, anybody.root, auth=None) == 1
    with pytest.raises(NodesOpen, match="the node above job"):
        start(place, anybody.root)
    anybody.close(f"/{anybody.root}", USUAL)
    anybody.close(anybody.jobs, USUAL)
    anybody.close(anybody.job)
    assert start(place, anybody.root) == 2


@pytest.mark.parametrize("node", ["incarnation", "record", "lives/0000000001", "commits"])
@pytest.mark.parametrize("right", sorted(OTHERS))
def test_one_node_that_others_may_change_is_enough(place: Any, anybody: Anybody, node: str, right: str) -> None:
    assert start(place, anybody.root) == 1
    path = f"{anybody.job}/{node}"
    store = place.open(auth=AUTH, root=anybody.root)
    if node.startswith("lives"):
        store.set_life(1, {"incarnation": 1, "phase": "stopped"})
    store.close()
    anybody.close(path, ("digest", "other:aGFzaA==", OTHERS[right]))
    with pytest.raises(NodesOpen, match=f"digest:other has {right}") as refused:
        start(place, anybody.root)
    assert refused.value.where == path
    anybody.close(path, ("digest", "other:aGFzaA==", 1))
    assert start(place, anybody.root) == 2, "reading does no harm"


@pytest.mark.parametrize("right", ["write", "delete", "admin"])
def test_the_nodes_above_may_be_anothers_but_not_anybodys(place: Any, anybody: Anybody, right: str) -> None:
    theirs = ("digest", "other:aGFzaA==", 31)
    anybody.make(f"/{anybody.root}", theirs, USUAL)
    start(place, anybody.root)
    anybody.close(anybody.jobs, (*ANYONE, 5 | OTHERS[right]))
    with pytest.raises(NodesOpen, match=f"world:anyone has {right}") as refused:
        start(place, anybody.root)
    assert f"`setAcl {anybody.jobs} auth::cdrwa,world:anyone:cr`" in refused.value.way_out


def test_a_node_that_is_closed_to_the_job_itself_is_refused_too(place: Any, anybody: Anybody) -> None:
    start(place, anybody.root, auth="user:another")
    with pytest.raises(ZooKeeperRefused, match="NoAuth"):
        start(place, anybody.root)

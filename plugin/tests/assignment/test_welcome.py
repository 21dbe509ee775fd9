"""What the service tells workers and the driver tells the service arrives as it was said."""

from __future__ import annotations

from life_settings import setting

from lowtide.assignment.setting import pack as pack_setting
from lowtide.assignment.setting import unpack as unpack_setting
from lowtide.assignment.welcome import FrontStart, Welcome, pack, unpack
from lowtide_tracker import Floor

START = FrontStart(number=3, topic="a-b", partition=7, offset=5, opening=20, floors=[(5, 20)])
DEPLOYMENT = bytes(range(256))


def test_a_worker_gets_what_was_said() -> None:
    for front in (START, None):
        welcome = Welcome(tracker="host:1", now_ms=-4, fronts={0: "a-0", 3: "a-b-7"}, front=front)
        assert unpack(pack(welcome, DEPLOYMENT)) == (welcome, DEPLOYMENT)


def test_promises_are_floors_of_the_front() -> None:
    assert START.name == "a-b-7"
    assert START.promised() == (Floor(3, 5, 20),)


def test_the_service_gets_what_was_said() -> None:
    said = setting("host:2181", 9, fronts=[START], published=17, kafka={"bootstrap.servers": "b:1"})
    unpacked, deployment = unpack_setting(pack_setting(said, DEPLOYMENT))
    assert (unpacked, deployment) == (said, DEPLOYMENT)
    assert (unpacked.job, unpacked.incarnation) == ("test", 9)

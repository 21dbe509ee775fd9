"""The disks of folders are looked at now and then, also of folders that are not there yet."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from lowtide.service.rooms import LOOK_EVERY_S, Rooms, rooms_of
from lowtide.status.moment import Room


def test_a_folder_that_is_not_there_yet_has_the_room_of_its_nearest_parent(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    [room] = rooms_of({"snapshots": tmp_path / "job" / "parts"})
    assert (room.what, room.folder) == ("snapshots", str(tmp_path / "job" / "parts"))
    assert room.size_bytes == disk.f_blocks * disk.f_frsize
    assert 0 < room.free_bytes <= room.size_bytes


def test_what_cannot_be_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A look that fails must not end the service."""

    def refused(_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr("lowtide.service.rooms.os.statvfs", refused)
    assert rooms_of({"log": tmp_path}) == []


def test_a_look_waits_for_nobody_and_comes_every_few_seconds(tmp_path: Path) -> None:
    async def looks() -> list[list[Room]]:
        rooms, found = Rooms({"log": tmp_path}), []
        for now_s in (100.0, 101.0, 100.0 + LOOK_EVERY_S, 101.0 + LOOK_EVERY_S):
            rooms.look(now_s)
            found.append(rooms.found)
            if rooms._looking is not None:
                await rooms._looking
        return found

    first, second, third, fourth = asyncio.run(looks())
    assert first == []
    assert [room.what for room in second] == ["log"]
    assert second is third
    assert fourth is not third


def test_without_folders_nothing_is_looked_at() -> None:
    rooms = Rooms({})
    rooms.look(1.0)
    assert rooms.found == []

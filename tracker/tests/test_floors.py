from lowtide_tracker import Floor, Floors


def test_the_newest_floor_of_an_offset_counts() -> None:
    floors = Floors()
    floors.add([Floor(1, 7, 100), Floor(1, 7, 300), Floor(1, 7, 200), Floor(1, 9, 250), Floor(2, 7, 1)])
    assert set(floors.all()) == {Floor(1, 7, 300), Floor(1, 9, 250), Floor(2, 7, 1)}
    assert len(floors) == 3


def test_each_is_new_once() -> None:
    floors = Floors()
    floors.add([Floor(1, 7, 100)])
    assert floors.take_new() == (Floor(1, 7, 100),)
    floors.add([Floor(1, 7, 100), Floor(1, 7, 90)])
    assert floors.take_new() == ()
    floors.add([Floor(1, 7, 101)])
    assert floors.take_new() == (Floor(1, 7, 101),)


def test_a_cap_and_a_floor_at_one_offset_are_two() -> None:
    floors = Floors()
    floors.add([Floor(1, 7, 100), Floor(1, 7, 50, cap=True)])
    assert len(floors.all()) == 2


def test_what_a_commit_covers_is_forgotten() -> None:
    floors = Floors()
    floors.add([Floor(1, 7, 100), Floor(1, 8, 110), Floor(2, 7, 100)])
    assert not floors.forget(1, 8)
    assert set(floors.all()) == set(floors.take_new()) == {Floor(1, 8, 110), Floor(2, 7, 100)}


def test_what_says_more_is_returned() -> None:
    floors = Floors()
    assert floors.add([Floor(1, 7, 100), Floor(1, 8, 110)]) == (Floor(1, 7, 100), Floor(1, 8, 110))
    assert floors.add([Floor(1, 7, 100), Floor(1, 8, 120)]) == (Floor(1, 8, 120),)


def test_floors_are_forgotten_some_at_a_time() -> None:
    """Records wait for the tracker's loop meanwhile."""
    floors = Floors()
    floors.add(Floor(1, offset, offset) for offset in range(10))
    floors.add(Floor(1, offset, offset, cap=True) for offset in range(3))
    assert floors.forget(1, 7, 4)
    assert len(floors) == 6 + 0
    assert not floors.forget(1, 7, 4)
    assert floors.all() == tuple(Floor(1, offset, offset) for offset in (7, 8, 9))

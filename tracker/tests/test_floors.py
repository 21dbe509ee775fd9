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
    floors.forget(1, 8)
    assert set(floors.all()) == set(floors.take_new()) == {Floor(1, 8, 110), Floor(2, 7, 100)}

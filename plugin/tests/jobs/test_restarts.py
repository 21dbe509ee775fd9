from lowtide.jobs.restarts import Restarts


def test_restarts_are_limited_within_a_window_and_wait_longer_each_time() -> None:
    restarts = Restarts(3, within_s=100)
    assert [restarts.pause_s(now) for now in (0.0, 1.0, 2.0, 3.0)] == [0.0, 1.0, 2.0, None]
    assert restarts.pause_s(101.5) == 1.0, "the first two are out of the window"
    assert restarts.count == 4
    assert restarts.pause_s(300.0) == 0.0


def test_none_at_all_can_be_asked_for() -> None:
    assert Restarts(0, within_s=100).pause_s(0.0) is None

"""R10: workers have names, are forked once, and one that is missing later ends the life."""

from lowtide.assignment.messages import Fork, Found, Refused
from lowtide.service.workers.register import Register
from lowtide_snapshots.cause import Cause

LIFE = 7


def forked(register: Register, name: str, level: int = 1, epoch: int = 0, executor: str = "0") -> int:
    answer = register.find(name, level, epoch, LIFE, executor)
    assert isinstance(answer, Fork)
    register.reported(
        name, answer.number, f"host:{4000 + answer.number}", f"unix:/{answer.number}", 100 + answer.number
    )
    return answer.number


def test_a_worker_is_forked_in_the_first_epoch_and_found_in_the_next_from_any_executor() -> None:
    register = Register(LIFE)
    number = forked(register, "1/0", executor="0")
    assert register.find("1/0", 1, 1, LIFE, "1") == Found(f"host:{4000 + number}")


def test_its_unix_socket_is_for_tasks_of_its_own_executor_alone() -> None:
    """Another executor may be on another machine, where the path means nothing, or another's socket."""
    register = Register(LIFE)
    number = forked(register, "1/0", executor="0")
    assert register.find("1/0", 1, 1, LIFE, "0") == Found(f"unix:/{number}")
    assert register.find("1/0", 1, 2, LIFE, "1") == Found(f"host:{4000 + number}")


def test_every_worker_has_a_number_of_its_own() -> None:
    register = Register(LIFE)
    assert [forked(register, name) for name in ("1/0", "1/1", "2/0")] == [0, 1, 2]


def test_only_a_driver_that_says_so_has_ended_a_life_on_purpose() -> None:
    killed, stopped, failed = Register(LIFE), Register(LIFE, finished=True), Register(LIFE)
    cause = Cause("loss", "worker 1/0 is gone")
    failed.end(cause)
    assert "driver program has gone" in str(killed.last_word)
    assert (stopped.last_word, failed.last_word) == (None, cause)


def test_a_worker_missing_after_the_first_epoch_ends_the_life() -> None:
    register = Register(LIFE)
    forked(register, "1/0", epoch=3)
    answer = register.find("1/1", 1, 4, LIFE, "0")
    assert isinstance(answer, Refused)
    assert "worker 1/1 is missing in epoch 4" in str(register.cause)
    assert "never forked" in str(register.cause)


def test_a_source_partition_that_shows_its_first_record_late_gets_its_worker() -> None:
    register = Register(LIFE)
    forked(register, "0/in-0", level=0, epoch=0)
    assert isinstance(register.find("0/in-1", 0, 5, LIFE, "0"), Fork)


def test_a_worker_that_was_forked_and_never_reported_is_not_forked_again() -> None:
    register = Register(LIFE)
    assert isinstance(register.find("0/in-0", 0, 0, LIFE, "0"), Fork)
    answer = register.find("0/in-0", 0, 1, LIFE, "1")
    assert isinstance(answer, Refused)
    assert "forked on executor 0 and never reported" in answer.cause


def test_the_loss_of_a_worker_ends_the_life_instead_of_an_empty_one_in_its_place() -> None:
    register = Register(LIFE)
    forked(register, "1/0")
    register.lost(["1/0"], "killed by SIGKILL")
    assert "worker 1/0 (pid 100 on executor 0) died: killed by SIGKILL" in str(register.cause)
    assert register.find("1/0", 1, 1, LIFE, "0") == Refused(str(register.cause))


def test_the_first_cause_is_kept() -> None:
    register = Register(LIFE)
    forked(register, "1/0")
    raised = Cause("flow", "the user's function raised")
    register.end(raised)
    register.lost(["1/0"])
    assert register.cause == raised


def test_a_task_of_another_life_is_refused_and_changes_nothing() -> None:
    register = Register(LIFE)
    answer = register.find("1/0", 1, 0, LIFE - 1, "0")
    assert isinstance(answer, Refused)
    assert "incarnation 7" in answer.cause
    assert not register.cause
    assert not register.workers


def test_a_worker_that_nobody_ordered_is_refused() -> None:
    register = Register(LIFE)
    number = forked(register, "1/0")
    assert isinstance(register.reported("1/9", 9, "host:1", "unix:/1", 1), Refused)
    assert isinstance(register.reported("1/0", number, "host:1", "unix:/1", 1), Refused)


def test_a_worker_that_dies_before_it_reports_is_said_with_how_it_died() -> None:
    register = Register(LIFE)
    register.find("1/0", 1, 0, LIFE, "0")
    register.lost(["1/0"], "killed by SIGKILL", 4711)
    assert "worker 1/0 (pid 4711 on executor 0) died before it was ready: killed by SIGKILL" in str(register.cause)


def test_a_worker_that_reports_after_the_end_of_the_life_is_refused() -> None:
    register = Register(LIFE)
    register.find("1/0", 1, 0, LIFE, "0")
    register.finished = True
    assert register.reported("1/0", 0, "host:1", "unix:/1", 1) == Refused("the job was stopped")


def test_a_life_runs_from_its_beginning_to_its_end() -> None:
    assert not Register(-1).runs
    assert Register(LIFE).runs
    assert not Register(LIFE, cause=Cause("loss", "a worker died")).runs
    assert not Register(LIFE, finished=True).runs


def test_a_task_of_level_0_finds_its_seat_before_it_has_seen_a_row() -> None:
    """R8: a worker may have frames to send in an epoch in which its partition has no rows."""
    register = Register(1)
    assert register.seat_of(0, 2) == ""
    register.seat(0, 2, "0/a-0")
    register.seat(1, 2, "0/a-1")
    assert (register.seat_of(0, 2), register.seat_of(1, 2)) == ("0/a-0", "0/a-1")
    assert register.seat_of(1, 3) == "", "a partition was added: Spark may order them otherwise"
    register.seat(2, 3, "0/a-1")
    assert register.seat_of(0, 3) == "", "seats of an order that is over are forgotten"


def test_workers_are_spread_over_hosts_level_by_level() -> None:
    """Each host gets a share of each level, so that a record's way may stay within one."""
    register = Register(LIFE)
    names = ["1/0", "0/in-0", "1/1", "0/in-1", "1/2", "2/0"]
    hosts: dict[str, int] = {}
    for name in names:
        answer = register.find(name, int(name[0]), 0, LIFE, "0", 2)
        assert isinstance(answer, Fork)
        hosts[name] = answer.host
    assert len(set(hosts.values())) == 2
    for level in "01":
        assert len({host for name, host in hosts.items() if name[0] == level}) == 2, level
    assert register.hosts() == set(hosts.values()) <= {0, 1}
    elsewhere = register.find("2/1", 2, 0, LIFE, "1", 2)
    assert elsewhere == Fork(6, 6), "a host is of one executor"


def test_the_loss_of_a_host_names_all_its_workers() -> None:
    register = Register(LIFE)
    forked(register, "0/in-0", level=0)
    forked(register, "1/0")
    register.lost(["0/in-0", "1/0", "9/9"], "killed by SIGKILL")
    for number, name in enumerate(("0/in-0", "1/0")):
        assert f"worker {name} (pid {100 + number} on executor 0) died: killed by SIGKILL" in str(register.cause)
    assert "Their state is lost with them" in str(register.cause)

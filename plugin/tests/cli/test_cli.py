"""The command line without services: quick help, plain errors, exit codes, `init`, `check`."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lowtide import Flow
from lowtide.cli import main_flow
from lowtide.cli.conf import FILES
from lowtide.cli.main import COMMANDS, run
from lowtide.cli.status_page import _event

CONF = Path(__file__).parents[3] / "conf"
LIBRDKAFKA_LIMIT_S = 50
FLOWS = Path(__file__).parents[1] / "flows"
SAID_BY_HELP = """
import sys
from lowtide.cli.main import run

assert run(["--help"]) == 0
print(sorted({"pyspark", "pyarrow", "numpy", "confluent_kafka", "rich", "kazoo"} & sys.modules.keys()))
"""


def test_help_names_every_command_and_loads_none(capfd: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SAID_BY_HELP], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_an_error_is_said_without_a_traceback_and_its_code_returned(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["services", "--set", "embeded.kafka_port=1"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("error: unknown table [embeded]\n")
    assert "did you mean [embedded]?" in said
    assert "Traceback" not in said


def test_a_wrong_command_line_is_said_the_same_way(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["frobnicate"]) == 2
    assert "error: No such command 'frobnicate'" in capfd.readouterr().err
    assert run(["topic", "create"]) == 2
    assert "error: Missing argument 'NAME|FLOW'" in capfd.readouterr().err


def test_a_zookeeper_that_is_away_is_said_once_and_without_its_client_s_own_lines() -> None:
    """In a process of its own, as pytest takes what logging would print."""
    nobody = ("--set", "zookeeper.hosts=127.0.0.1:1", "--set", "zookeeper.reach_limit_s=1")
    command = (sys.executable, "-m", "lowtide.cli", "snapshots", "list", "orders", *nobody)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[0] == "error: ZooKeeper did not answer within 1 s"


def test_a_mistyped_command_names_the_nearest_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["rn", "flow.py"]) == 2
    assert "error: there is no command 'rn'; did you mean 'run'?" in capfd.readouterr().err


def test_status_of_an_empty_folder_says_how_to_start_a_job(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--set", f"job.folder={tmp_path}"]) == 0
    assert capfd.readouterr().out == f"no jobs in {tmp_path}; start one: lowtide run flow.py --detach\n"


def test_submit_args_hand_on_the_flow_with_its_options(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "lowtide.toml"
    conf.write_text("")
    assert run(["submit-args", "flow.py", "--conf", str(conf), "--set", "job.parallelism=3"]) == 0
    assert capfd.readouterr().out.endswith(f" flow.py --conf {conf} --set job.parallelism=3\n")
    assert run(["submit-args", "my flow.py"]) == 2
    assert "'my flow.py' holds white space" in capfd.readouterr().err


def test_submit_args_hand_on_settings_without_a_flow_in_sparks_conf(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["submit-args", "--set", "job.parameters.mark=18", "--set", "job.parallelism=3"]) == 0
    handed_on = " --conf spark.lowtide.job.parameters.mark=18 --conf spark.lowtide.job.parallelism=3\n"
    assert capfd.readouterr().out.endswith(handed_on)
    assert run(["submit-args", "--set", "job.parameters.separator= "]) == 2
    assert "'spark.lowtide.job.parameters.separator= ' holds white space" in capfd.readouterr().err


def test_a_topic_is_not_created_where_no_broker_answers_and_that_is_said_soon(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The client's own limit is a minute."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"kafka.bootstrap_servers=127.0.0.1:{closed.getsockname()[1]}"
        began = time.monotonic()
        assert run(["topic", "create", "x", "--set", address, "--set", "kafka.reach_limit_ms=500"]) != 0
    assert time.monotonic() - began < LIBRDKAFKA_LIMIT_S
    assert 'Kafka did not answer about topic "x"' in capfd.readouterr().err


def test_an_event_is_shown_with_times_and_without_what_it_does_not_have() -> None:
    event: dict[str, object] = {
        "ts": "now",
        "job": "j",
        "event": "snapshot_sealed",
        "called": None,
        "min_time_ms": 1_000,
        "parts": 2,
    }
    assert _event(event) == "now  snapshot_sealed  min time 1970-01-01 00:00:01.000, parts 2"


def test_init_writes_a_flow_that_passes_its_own_test_and_check(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    assert run(["init", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == {"flow.py", "lowtide.toml", "test_flow.py"}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], check=True, cwd=folder)
    lowtide = [sys.executable, "-m", "lowtide.cli"]
    checked = [*lowtide, "check", "flow.py", "--explain", "--conf", "lowtide.toml"]
    said = subprocess.run(checked, check=True, cwd=folder, capture_output=True, text=True).stdout
    assert "note:" not in said
    assert 'flow "counts" is sound' in said
    assert "level 1: 2 workers" in said
    assert "scan: Word of words/by-word -> Count, with the state int" in said


def test_init_overwrites_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flow.py").write_text("mine")
    assert run(["init", str(tmp_path)]) == 2
    assert "flow.py would be overwritten" in capfd.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("flow.py", "mine")]


@pytest.mark.parametrize("place", ["taken", "taken/inside", "loop", "/proc/none"])
def test_init_says_that_a_folder_cannot_be_made(place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "loop").symlink_to("loop")
    assert run(["init", str(tmp_path / place)]) == 2
    said = capfd.readouterr().err
    assert said.startswith("error: the files cannot be written there: ")
    assert "what to do: name a folder that you may write to" in said


def test_every_file_of_conf_is_printed_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert sorted(FILES.values()) == sorted(path.name for path in CONF.iterdir())
    for name, file in FILES.items():
        assert run(["conf", name]) == 0
        assert capfd.readouterr().out == (CONF / file).read_text()
    assert run(["conf"]) == 0
    assert capfd.readouterr().out == (CONF / "embedded.toml").read_text()


def test_check_says_every_fault_and_ends_with_3(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", f"{FLOWS / 'faults.py'}:flow"]) == 3
    text = capfd.readouterr().out
    assert run(["check", f"{FLOWS / 'faults.py'}:flow", "--json"]) == 3
    said = json.loads(capfd.readouterr().out)
    assert said["sound"] is False
    assert said["findings"]
    assert all(finding["message"] in text for finding in said["findings"])


def test_check_of_a_file_that_is_not_there_is_a_plain_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "nowhere.py"]) == 3
    assert "error: nowhere.py does not exist" in capfd.readouterr().err


def test_services_of_a_folder_without_any_are_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "none"
    assert run(["services", "--json", "--set", f"embedded.folder={folder}"]) == 0
    assert [(each["name"], each["state"]) for each in json.loads(capfd.readouterr().out)] == [
        ("zookeeper", "stopped"),
        ("kafka", "stopped"),
    ]
    assert run(["down", "--set", f"embedded.folder={folder}"]) == 0
    assert not folder.exists(), "looking changes nothing"


@pytest.mark.parametrize(
    ("given", "called"), [([], ["run"]), (["--detach"], ["run", "--detach"]), (["recover"], ["recover"])]
)
def test_a_program_runs_its_flow_or_recovers_it(
    given: list[str], called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[list[str]] = []

    def hear(arguments: list[str], given: object) -> int:
        heard.append(arguments)
        return 0

    monkeypatch.setattr("lowtide.cli.main.run", hear)
    monkeypatch.setattr("sys.argv", ["flow.py", *given])
    with pytest.raises(SystemExit):
        main_flow(Flow("counts"))
    assert heard == [called]

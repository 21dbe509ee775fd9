"""Terraform and the provider of hosts: applied twice, drift shown and mended, a failure reported, destroyed whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lowtide_hosts.cli import leftovers, remove
from lowtide_hosts.host import Host
from lowtide_hosts.program import Program
from terraform_tools import ROOT, Terraform
from tests.still_network import own_network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts are made by root alone"),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="there is no terraform here"),
]
NAME = f"terraform-{os.getpid()}"
CIDR = f"10.{30 + os.getpid() % 40}.{os.getpid() // 40 % 256}.0/24"
MAIN = """
terraform {
  required_providers {
    hosts = { source = "lowtide.local/lowtide/hosts", version = "0.1.0" }
  }
}

variable "command" {
  type    = list(string)
  default = ["python3", "-m", "http.server", "8000"]
}

module "network" {
  source = "%(module)s"
  name   = "%(name)s"
  cidr   = "%(cidr)s"
  hosts  = { one = { number = 10 }, two = { number = 11 } }
}

resource "hosts_program" "web" {
  network       = module.network.network.name
  host          = "one"
  boot          = module.network.network.hosts["one"].boot
  name          = "web"
  command       = var.command
  files         = { word = "hello" }
  port          = 8000
  start_limit_s = 60
}

resource "hosts_files" "words" {
  network = module.network.network.name
  host    = "two"
  boot    = module.network.network.hosts["two"].boot
  name    = "words"
  files   = { "a/word" = "hello" }
}
"""
NOTHING, ERROR, SOMETHING = 0, 1, 2
"""The end of a plan's output."""


@dataclass(frozen=True)
class Cluster:
    """A cluster of two hosts, and a Terraform for it alone."""

    folder: Path
    tools: Terraform

    def terraform(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call Terraform."""
        return subprocess.run(
            ["terraform", command, "-no-color", "-input=false", *arguments],
            cwd=self.folder, env=self.tools.environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    def apply(self, *arguments: str) -> str:
        """Apply it; what Terraform says."""
        done = self.terraform("apply", "-auto-approve", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def plan(self) -> tuple[int, set[str]]:
        """The end of a plan's output, and what it would create."""
        done = self.terraform("plan", "-detailed-exitcode", "-json")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        planned = [event["change"] for event in events if event["type"] == "planned_change"]
        assert {change["action"] for change in planned} <= {"create"}
        return done.returncode, {change["resource"]["addr"] for change in planned}


@pytest.fixture(name="cluster", scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    uv = subprocess.run(
        [sys.executable, ROOT / "tools/environment.py", "uv"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with pytest.MonkeyPatch.context() as patch, own_network():
        patch.setenv("LOWTIDE_UV", uv)
        cluster = Cluster(folder, Terraform(folder))
        cluster.tools.provide_hosts()
        module = ROOT / "infra/terraform/local/modules/network"
        (folder / "main.tf").write_text(MAIN % {"module": module, "name": NAME, "cidr": CIDR})
        done = cluster.terraform("init")
        assert done.returncode == 0, done.stdout + done.stderr
        try:
            cluster.apply()
            yield cluster
            assert "Destroy complete! Resources: 5 destroyed." in cluster.terraform("destroy", "-auto-approve").stdout
            assert not any(leftovers(NAME).values())
        finally:
            remove(NAME)


def found(name: str) -> Host:
    host = Host.find(NAME, name)
    assert host is not None
    return host


def test_what_stands_is_left_as_it_is(cluster: Cluster) -> None:
    assert cluster.plan() == (NOTHING, set())
    assert "0 added, 0 changed, 0 destroyed" in cluster.apply()


def test_a_program_that_has_died_is_started_again(cluster: Cluster) -> None:
    process = Program.running(found("one"), "web")
    assert process is not None
    process.signal(signal.SIGKILL)
    process.gone_within(10)
    assert cluster.plan() == (SOMETHING, {"hosts_program.web"})
    assert "1 added, 0 changed, 0 destroyed" in cluster.apply()
    assert Program.running(found("one"), "web") not in {None, process}


def test_a_file_that_somebody_has_changed_is_written_again(cluster: Cluster) -> None:
    file = found("two").home / "words/a/word"
    file.write_text("bye")
    assert cluster.plan() == (SOMETHING, {"hosts_files.words"})
    cluster.apply()
    assert file.read_text() == "hello"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_host_that_is_lost_comes_back_with_what_belongs_on_it(cluster: Cluster) -> None:
    found("one").lose()
    code, created = cluster.plan()
    assert (code, created) == (SOMETHING, {'module.network.hosts_host.this["one"]', "hosts_program.web"})
    cluster.apply()
    assert Program.running(found("one"), "web") is not None
    assert cluster.plan() == (NOTHING, set())


def test_a_program_that_does_not_start_fails_the_apply_with_what_it_said(cluster: Cluster) -> None:
    broken = """-var=command=["sh", "-c", "echo no such thing; exit 3"]"""
    done = cluster.terraform("apply", "-auto-approve", broken)
    assert done.returncode == ERROR
    assert "no such thing" in done.stderr
    assert "web on one has ended" in " ".join(done.stderr.split())
    assert "1 added" in cluster.apply(), "what was made before the failure is known, and the rest is made"

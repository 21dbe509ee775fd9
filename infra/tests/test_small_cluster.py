"""A cluster of three hosts by plain Terraform, as infra/README.md has it: applied, used, destroyed whole."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lowtide_hosts.cli import leftovers, remove
from lowtide_hosts.host import Host
from software import servers
from terraform_tools import HOSTS, ROOT, hosts_provider, plain_environment, put_provider, work_folder
from tests.still_network import own_network

from lowtide.jars.third_party import pyspark_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts are made by root alone"),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="there is no terraform here"),
]
NAME = f"small-{os.getpid()}"
CIDR = f"10.{130 + os.getpid() % 40}.{os.getpid() // 40 % 256}.0/24"


@dataclass(frozen=True)
class Clone:
    """The module as it lies in a clone after `make infra-software`, with the software of the tests' environment."""

    folder: Path

    def terraform(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call Terraform as a reader does, without a word on providers, state or variables."""
        return subprocess.run(
            ["terraform", *arguments, "-no-color", "-input=false"],
            cwd=self.folder, env={**plain_environment(), "HOME": str(self.folder), "CHECKPOINT_DISABLE": "1"},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    @property
    def state(self) -> Path:
        """The file of what Terraform knows, which holds secrets."""
        return self.folder.parents[2] / ".lowtide/cluster/terraform.tfstate"


@pytest.fixture(name="clone", scope="module")
def _clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    root = tmp_path_factory.mktemp("clone")
    folder = root / "infra/terraform/local"
    left_out = shutil.ignore_patterns(".terraform*", "terraform.*", "*.auto.tfvars.json")
    shutil.copytree(ROOT / "infra/terraform/local", folder, ignore=left_out)
    (root / ".lowtide/cluster").mkdir(parents=True, mode=0o700)
    # Not in /tmp, as each host has one of its own.
    opt = work_folder() / NAME
    (opt / "lowtide").mkdir(parents=True)
    (opt / "lowtide/environment").symlink_to(sys.prefix)
    software = {
        **servers(opt),
        "spark": str(pyspark_folder()),
        "lowtide": str(opt / "lowtide"),
        "airflow": str(opt / "none"),
        "hidden": [],
    }
    given = {"name": NAME, "cidr": CIDR, "small": True, "software": software}
    (folder / "software.auto.tfvars.json").write_text(json.dumps(given))
    uv = subprocess.run(
        [sys.executable, ROOT / "tools/environment.py", "uv"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with pytest.MonkeyPatch.context() as patch, own_network():
        patch.setenv("LOWTIDE_UV", uv)
        put_provider(folder / "terraform.d/plugins", *HOSTS, hosts_provider())
        clone = Clone(folder)
        try:
            for command in (["init"], ["apply", "-auto-approve"]):
                done = clone.terraform(*command)
                assert done.returncode == 0, done.stderr
            yield clone
            done = clone.terraform("destroy", "-auto-approve")
            assert done.returncode == 0, done.stdout + done.stderr
            assert not any(leftovers(NAME).values())
        finally:
            remove(NAME)
            shutil.rmtree(opt)


def on_driver(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script where jobs are started."""
    driver = Host.find(NAME, "driver")
    assert driver is not None
    command = driver.inside(["bash", "-ec", f". /home/lowtide/profile; cd /home; {script}"], {})
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


def test_it_is_three_hosts_and_a_plan_finds_nothing_to_do(clone: Clone) -> None:
    assert {host.name for host in Host.all(NAME)} == {"services", "worker-1", "driver"}
    done = clone.terraform("plan", "-detailed-exitcode")
    assert done.returncode == 0, done.stdout


def test_its_state_is_for_its_owner_alone(clone: Clone) -> None:
    assert stat.S_IMODE(clone.state.parent.stat().st_mode) == 0o700
    assert clone.state.stat().st_size > 0


def test_its_servers_take_what_the_drivers_host_knows(clone: Clone) -> None:
    done = on_driver(
        "lowtide topic create words --partitions 2 --conf /home/lowtide/cluster.toml"
        " && echo 'an apple' | lowtide topic write words --conf /home/lowtide/cluster.toml"
        " && lowtide topic read words --conf /home/lowtide/cluster.toml"
        " && lowtide doctor --conf /home/lowtide/cluster.toml"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "created words with 2 partitions" in done.stdout
    assert "an apple" in done.stdout.splitlines()


def test_a_server_that_has_died_is_the_only_thing_that_a_plan_would_make(clone: Clone) -> None:
    services = Host.find(NAME, "services")
    assert services is not None
    subprocess.run(services.inside(["pkill", "-KILL", "-f", "QuorumPeerMain"], {}), check=True, timeout=60)
    done = clone.terraform("plan", "-detailed-exitcode")
    assert done.returncode == 2, done.stdout
    assert "1 to add, 0 to change, 0 to destroy" in done.stdout
    assert 'module.zookeeper.hosts_program.this["services"] will be created' in done.stdout

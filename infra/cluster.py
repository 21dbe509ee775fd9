"""A cluster on this machine, made by Terraform: `cluster.py up|plan|down|shell`, as `make infra-up` calls it.

Root only. What Terraform knows lies in `.lowtide/cluster` of the clone; the hosts' own files in /var/lib/lowtide-hosts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import click
from lowtide_hosts.cli import leftovers
from lowtide_hosts.host import Host
from software import gather
from terraform_tools import ROOT, Terraform, work_folder

MODULE = ROOT / "infra/terraform/local"
WORK = ROOT / ".lowtide/cluster"
SETTINGS = WORK / "settings.json"
TERRAFORM = Terraform(WORK)
PROFILE = ". /home/lowtide/profile"

variables = click.option("--var", "settings", multiple=True, metavar="KEY=VALUE", help="A variable of Terraform's.")


@click.group(help=__doc__)
def main() -> None:
    """Check that this machine can have a cluster."""
    check_machine()


def check_machine() -> None:
    """Check that a cluster can be made here; ClickException names what is missing."""
    if os.geteuid() != 0:
        raise click.ClickException("this needs root: it makes network devices and namespaces")
    if shutil.which("terraform") is None:
        raise click.ClickException("there is no terraform on PATH: install Terraform 1.9 or newer")


@main.command()
@variables
def up(settings: tuple[str, ...]) -> None:
    """Make the cluster, or what is missing of it."""
    make(settings)
    for host in Host.all(name()):
        click.echo(f"  {host.address:<12} {host.name}")
    click.echo("a shell where jobs are started: make infra-shell; their conf is /home/lowtide/cluster.toml there")


def make(settings: tuple[str, ...]) -> float:
    """Make the cluster, or what is missing of it; return Terraform's seconds."""
    check_machine()
    began = time.monotonic()
    prepare()
    made = time.monotonic()
    terraform("apply", "-auto-approve", *given(settings))
    took_s = time.monotonic() - made
    click.echo(f"up after {took_s:.1f} s ({made - began:.1f} s before that to gather software)")
    return took_s


@main.command()
@variables
def plan(settings: tuple[str, ...]) -> None:
    """Show what is not as it should be: what has died is to be created. Exits with 2 if there is anything."""
    prepare()
    sys.exit(terraform("plan", "-detailed-exitcode", *given(settings), check=False))


def stands() -> bool:
    """Return whether Terraform finds the whole cluster as it should be."""
    code = terraform("plan", "-detailed-exitcode", *given(()), quiet=True, check=False)
    if code not in {0, 2}:
        raise click.ClickException(f"terraform plan failed, with exit code {code}")
    return code == 0


@main.command()
def down() -> None:
    """Destroy the cluster, and count what is left of it."""
    if not (WORK / "terraform.tfstate").exists():
        click.echo("there is no cluster")
        return
    sys.exit(int(any(destroy().values())))


def destroy() -> dict[str, int]:
    """Destroy the cluster; return the counts of its leftovers."""
    prepare()
    began, network = time.monotonic(), name()
    terraform("destroy", "-auto-approve", *given(()))
    SETTINGS.unlink(missing_ok=True)
    left = leftovers(network)
    click.echo(json.dumps(left))
    click.echo(f"down after {time.monotonic() - began:.1f} s")
    return left


@main.command()
@click.argument("host", default="driver")
def shell(host: str) -> None:
    """Open a shell on a host."""
    found = Host.find(name(), host)
    if found is None:
        raise click.ClickException(f"host {host} is not up")
    command = found.inside(
        ["bash", "-c", f"[ -f /home/lowtide/profile ] && {PROFILE}; exec bash"],
        {"TERM": os.environ.get("TERM", "dumb")},
    )
    os.execvp(command[0], command)


def name() -> str:
    """Return the cluster's name: the one it was made with."""
    shown = subprocess.run(
        ["terraform", f"-chdir={MODULE}", "output", "-raw", f"-state={WORK / 'terraform.tfstate'}", "name"],
        check=False, capture_output=True, text=True, env=TERRAFORM.environment,
    )  # fmt: skip
    return shown.stdout.strip() or "lowtide"


def given(settings: tuple[str, ...]) -> list[str]:
    """Return Terraform's arguments: its state's path, and variables, by default those of the last `up`."""
    if settings:
        SETTINGS.write_text(json.dumps(settings))
    known = settings or (json.loads(SETTINGS.read_text()) if SETTINGS.exists() else [])
    return [
        f"-state={WORK / 'terraform.tfstate'}", f"-var-file={WORK / 'software.tfvars.json'}",
        "-no-color", "-input=false",
        *(f"-var={setting}" for setting in known),
    ]  # fmt: skip


def prepare() -> None:
    """Prepare everything Terraform needs: the provider in an environment of its own, and the software."""
    work_folder()
    WORK.mkdir(exist_ok=True)
    WORK.chmod(0o700)
    TERRAFORM.provide_hosts()
    (WORK / "software.tfvars.json").write_text(json.dumps({"software": gather()}, indent=2) + "\n")
    # It holds a checksum of the provider, which changes with the clone.
    (MODULE / ".terraform.lock.hcl").unlink(missing_ok=True)
    terraform("init", "-no-color", "-input=false", quiet=True)


def terraform(command: str, *arguments: str, quiet: bool = False, check: bool = True) -> int:
    """Call Terraform; return its exit code. Its progress is shown line by line, or everything if it fails."""
    lines: list[str] = []
    with subprocess.Popen(
        ["terraform", f"-chdir={MODULE}", command, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=TERRAFORM.environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if not quiet and (command == "plan" or " complete after " in line or "complete!" in line):
                click.echo(line, nl=False)
    if check and process.returncode:
        raise click.ClickException(f"terraform {command} failed:\n{''.join(lines[-60:])}")
    return process.returncode


if __name__ == "__main__":
    main()

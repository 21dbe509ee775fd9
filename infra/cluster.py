"""A cluster on this machine, made by Terraform: `cluster.py software|up|plan|down|shell`, as `make infra-up` calls it.

`software` puts what the module needs beside its files: from then on plain `terraform init`, `apply` and `destroy` work
there. The other commands call these, for root. The state lies in `.lowtide/cluster` of the clone, the hosts' own
files in /var/lib/lowtide-hosts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
from lowtide_hosts.cli import leftovers
from lowtide_hosts.host import Host
from software import gather
from terraform_tools import HOSTS, ROOT, hosts_provider, plain_environment, put_provider, work_folder

MODULE = ROOT / "infra/terraform/local"
WORK = ROOT / ".lowtide/cluster"
STATE = WORK / "terraform.tfstate"
SETTINGS = MODULE / "settings.auto.tfvars.json"
"""The variables of the last `up`, which Terraform reads by itself."""
PROFILE = ". /home/lowtide/profile"

variables = click.option("--var", "settings", multiple=True, metavar="KEY=VALUE", help="A variable of Terraform's.")


@click.group(help=__doc__)
@click.pass_context
def main(context: click.Context) -> None:
    """Check that this machine can have a cluster."""
    if context.invoked_subcommand != "software":
        check_machine()


def check_machine() -> None:
    """Check that a cluster can be made here; ClickException names what is missing."""
    if os.geteuid() != 0:
        raise click.ClickException("this needs root: it makes network devices and namespaces")
    if shutil.which("terraform") is None:
        raise click.ClickException("there is no terraform on PATH: install Terraform 1.9 or newer")


@main.command()
def software() -> None:
    """Put the software's folders and Terraform's provider of hosts beside the module's files."""
    place(MODULE)
    click.echo(f"now, as root: cd {MODULE.relative_to(ROOT)} && terraform init && terraform apply")


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
    if settings:
        SETTINGS.write_text(json.dumps(dict(map(setting, settings)), indent=2) + "\n")
    terraform("apply", "-auto-approve")
    took_s = time.monotonic() - made
    click.echo(f"up after {took_s:.1f} s ({made - began:.1f} s before that to gather software)")
    return took_s


@main.command()
@variables
def plan(settings: tuple[str, ...]) -> None:
    """Show what is not as it should be: what has died is to be created. Exits with 2 if there is anything."""
    prepare()
    given = [f"-var={each}" for each in settings]
    sys.exit(terraform("plan", "-detailed-exitcode", *given, check=False))


def stands() -> bool:
    """Return whether Terraform finds the whole cluster as it should be."""
    code = terraform("plan", "-detailed-exitcode", quiet=True, check=False)
    if code not in {0, 2}:
        raise click.ClickException(f"terraform plan failed, with exit code {code}")
    return code == 0


@main.command()
def down() -> None:
    """Destroy the cluster, and count what is left of it."""
    if not STATE.exists():
        click.echo("there is no cluster")
        return
    sys.exit(int(any(destroy().values())))


def destroy() -> dict[str, int]:
    """Destroy the cluster; return the counts of its leftovers."""
    prepare()
    began, network = time.monotonic(), name()
    terraform("destroy", "-auto-approve")
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
        ["terraform", "output", "-raw", "name"],
        check=False, capture_output=True, text=True, cwd=MODULE, env=environment(),
    )  # fmt: skip
    return shown.stdout.strip() or "lowtide"


def setting(text: str) -> tuple[str, str]:
    """Return a variable's name and its value, of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--var")
    return key, value


def place(module: Path) -> None:
    """Put what a module like MODULE needs beside its files: the software's folders, and the provider of hosts."""
    work_folder()
    WORK.mkdir(exist_ok=True)
    WORK.chmod(0o700)
    # Terraform looks for providers here before it asks any registry.
    put_provider(module / "terraform.d/plugins", *HOSTS, hosts_provider())
    (module / "software.auto.tfvars.json").write_text(json.dumps({"software": gather()}, indent=2) + "\n")
    # It holds a checksum of the provider, which changes with the clone.
    (module / ".terraform.lock.hcl").unlink(missing_ok=True)


def prepare() -> None:
    """Prepare everything Terraform needs."""
    place(MODULE)
    (WORK / "terraform.rc").write_text("")
    terraform("init", "-input=false", quiet=True)


def environment() -> dict[str, str]:
    """Return Terraform's variables: none of the user's settings, which may name other places of providers."""
    return {
        **plain_environment(),
        "TF_CLI_CONFIG_FILE": str(WORK / "terraform.rc"),
        "TF_IN_AUTOMATION": "1",
        "CHECKPOINT_DISABLE": "1",
    }


def terraform(command: str, *arguments: str, quiet: bool = False, check: bool = True) -> int:
    """Call Terraform; return its exit code. Its progress is shown line by line, or everything if it fails."""
    lines: list[str] = []
    # In the folder itself: with -chdir some versions look for terraform.d/plugins where they were called.
    with subprocess.Popen(
        ["terraform", command, "-no-color", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=MODULE, env=environment(),
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

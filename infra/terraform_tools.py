"""Terraform and the tools beside it: providers of this clone, Python environments, programs built with Go."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from lowtide.cache import cache_folder

ROOT = Path(__file__).resolve().parents[1]
BASE_PYTHON = Path(sys.executable).resolve()
"""The interpreter that the environment was made with, which all hosts have."""
PLATFORM = f"linux_{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }"
"""This machine, as Terraform calls it."""
HOSTS = ("lowtide.local/lowtide/hosts", "0.1.0")
"""The provider of hosts, and the version that the modules require."""


@dataclass(frozen=True)
class Terraform:
    """Terraform without the user's settings, which finds only the providers in its folder.

    Attributes:
        folder: Folder of its settings, those providers and its data.
    """

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return its variables."""
        return {
            **plain_environment(),
            "TF_CLI_CONFIG_FILE": str(self.folder / "terraform.rc"),
            "TF_DATA_DIR": str(self.folder / "data"),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
        }

    def provide(self, provider: str, version: str, command: Sequence[str]) -> None:
        """Register a command as a provider; Terraform looks for it nowhere else."""
        mirror = self.folder / "providers"
        put_provider(mirror, provider, version, command)
        (self.folder / "terraform.rc").write_text(
            f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n'
        )

    def provide_hosts(self) -> None:
        """Register the provider of hosts."""
        self.provide(*HOSTS, hosts_provider())


def put_provider(mirror: Path, provider: str, version: str, command: Sequence[str]) -> None:
    """Put a command into a folder of providers, laid out as Terraform reads it."""
    file = mirror / provider / version / PLATFORM / f"terraform-provider-{Path(provider).name}_v{version}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\nPYTHONPATH={ROOT / 'infra'}:{ROOT / 'infra/hosts'} exec {' '.join(command)}\n")
    file.chmod(0o755)


def hosts_provider() -> list[str]:
    """Return the command of the provider of hosts."""
    return [str(provider_python()), "-m", "lowtide_hosts"]


def plain_environment() -> dict[str, str]:
    """Return the environment without variables that configure Terraform."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TF_")}


def work_folder() -> Path:
    """Return the clone's folder for files that git ignores."""
    folder = ROOT / ".lowtide"
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder


def provider_python() -> Path:
    """Return the interpreter for providers."""
    return tool_environment("provider", ROOT / "infra/hosts/requirements.lock") / "bin/python"


def tool_environment(name: str, lock: Path) -> Path:
    """Return the folder of a tool's Python environment; make it if it is missing."""
    folder = cache_folder() / "cluster" / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        python_tool("venv", "--clear", "--python", BASE_PYTHON, folder)
        python_tool("pip", "sync", "--python", folder / "bin/python", "--require-hashes", lock)
        (folder / "complete").touch()
    return folder


def python_tool(*arguments: object) -> None:
    """Call uv, the tool that makes Python environments."""
    known = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    known.setdefault("UV_CACHE_DIR", str(cache_folder() / "uv-cache"))
    run(os.environ["LOWTIDE_UV"], "--quiet", *arguments, environment=known)


def go_program(name: str) -> Path:
    """Return a program that Go builds into the cache; build it if it is missing."""
    return Path(run(ROOT / "tools/go-program", "build", name).strip())


def run(*command: object, environment: Mapping[str, str] | None = None) -> str:
    """Run a command; return its output. Its standard error is shown at once.

    Raises:
        ClickException: it failed.
    """
    done = subprocess.run(list(map(str, command)), check=False, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        click.echo(done.stdout, nl=False)
        raise click.ClickException(f"{Path(str(command[0])).name} failed, with exit code {done.returncode}")
    return done.stdout

"""Checks of what Terraform's modules declare: the same outputs here and on AWS, and a test for each validation."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click

INTERFACE = {
    "network": {"network"},
    "zookeeper": {"hosts"},
    "kafka": {"bootstrap_servers", "security", "password"},
    "object-store": {"url", "endpoint"},
    "spark": {"master", "defaults"},
    "airflow": {"connection", "url"},
}
"""The modules that every cluster has, and the outputs of each."""


def check_interface(*clusters: Path) -> None:
    """Check that clusters have the same modules, that these have the same outputs, and so have the clusters."""
    for cluster in clusters:
        modules = {folder.name for folder in (cluster / "modules").iterdir() if any(folder.glob("*.tf"))}
        if missing := INTERFACE.keys() - modules:
            raise click.ClickException(f"{cluster.name}: these modules are missing: {', '.join(sorted(missing))}")
        for name, outputs in INTERFACE.items():
            if missing := outputs - _outputs(cluster / "modules" / name):
                raise click.ClickException(f"{cluster.name}: module {name} lacks outputs: {', '.join(sorted(missing))}")
        if different := _outputs(cluster) ^ _outputs(clusters[0]):
            raise click.ClickException(f"{cluster.name}: these outputs are not in both: {', '.join(sorted(different))}")


def check_validations(cluster: Path) -> int:
    """Check that each validation of a variable has a test in which it refuses; return the number of validations."""
    text = (cluster / "variables.tf").read_text()
    tests = "".join(file.read_text() for file in sorted((cluster / "tests").glob("*.tftest.hcl")))
    expected = re.findall(r"expect_failures = \[(.*?)\]", tests, re.DOTALL)
    refused = Counter(name for each in expected for name in re.findall(r"var\.(\w+)", each))
    found = 0
    for name, body in re.findall(r'^variable "(\w+)" \{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL):
        validations = body.count("validation {")
        if validations > refused[name]:
            raise click.ClickException(f"{cluster.name}: a validation of the variable {name} has no test")
        found += validations
    return found


def _outputs(module: Path) -> set[str]:
    return set(re.findall(r'^output "(\w+)"', (module / "outputs.tf").read_text(), re.MULTILINE))

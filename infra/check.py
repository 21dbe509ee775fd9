"""Checks of infra/terraform, without AWS and without its provider: `make infra-check`.

Terraform validates and tests the module `aws` against a provider that has the schemas of AWS's and nothing else
(`aws_schema`); tflint and checkov read it. What all this shows, and what it does not, stands in the module's README.md.
The module `local` is validated and tested with its own provider, of which nothing is asked; `make infra-up` applies it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from aws_schema.binding import write_schemas
from declarations import check_interface, check_validations
from terraform_tools import (
    BASE_PYTHON,
    ROOT,
    Terraform,
    go_program,
    plain_environment,
    provider_python,
    run,
    tool_environment,
    work_folder,
)

from lowtide.cache import cache_folder

MODULES = ROOT / "infra/terraform"
AWS, LOCAL = MODULES / "aws", MODULES / "local"
PROVIDER_VERSION = "6.25.0"

MISTAKES = {
    "an argument that does not exist": ("kafka", "cluster_name ", "cluster_nam ", "Unsupported argument"),
    "an argument that is missing": ("zookeeper", "  device_name                    = \"/dev/sdf\"\n", "", "Missing"),
    "an argument of another type": ("kafka", "= var.brokers", '= "three"', "Incorrect attribute value type"),
    "a block that does not exist": ("kafka", "encryption_info {", "encryption {", "Unsupported block type"),
    "an attribute that does not exist": ("spark", "this.master_public_dns", "this.dns", "Unsupported attribute"),
}  # fmt: skip
"""Edits of a module, with Terraform's errors for them: a check that accepts everything is not a check."""

PROTECTED = ("aws_ebs_volume", "aws_kms_key", "aws_msk_cluster", "aws_s3_bucket")
"""What holds what cannot be made again: Terraform refuses to destroy it until `unprotect` was called."""

MISTAKE = """
resource "aws_s3_bucket" "open" {
  bucket = "open"
  acl    = "public-read"
}

variable "key" {
  default = "AKIAZ7Q2XW4K9R3T5Y6U"
}
"""
MISTAKE_IS = {"CKV_AWS_20", "CKV_SECRET_2"}
"""What checkov has to find in it: a bucket that all may read, and a key."""

LATER = ("sizes.tftest.hcl", "protection.tftest.hcl")
"""Tests that are run in another way than the rest."""

POLICIES = 10
"""The module has more; if fewer are found, the tests' states do not have the form that this file expects."""

WILDCARDS = {
    "TheAccountDecides": "in a key's policy * is that key, and without it IAM could give nobody the key",
    "Logs": "in a key's policy * is that key",
    "AccountWide": "calls that take no resource",
    "Metrics": "a call that takes no resource; its namespace is fixed",
}
"""Statements that may allow the action or the resource `*`."""


@click.command(help=__doc__)
def main() -> None:
    """Run all checks; the last line names them."""
    for tool in ("terraform", "go"):
        if shutil.which(tool) is None:
            raise click.ClickException(f"there is no {tool} on PATH: install {tool}")
    check_interface(LOCAL, AWS)
    validations = sum(map(check_validations, (LOCAL, AWS)))
    run("terraform", "fmt", "-check", "-recursive", "-diff", MODULES, environment=plain_environment())
    with tempfile.TemporaryDirectory(dir=work_folder()) as folder:
        aws = Aws(Path(folder) / "aws")
        aws.validate()
        # In this order: where a file overrides a resource, Terraform no longer refuses blocks that do not exist.
        aws.refuse_mistakes()
        aws.refuse_to_destroy()
        tests, policies = aws.test()
        sizes = aws.test_sizes()
        local = Module(LOCAL, Path(folder) / "local")
        local.tools.provide_hosts()
        local.validate()
        local_tests = passed(local.run_tests())
    lint = tflint()
    scan = checkov()
    click.echo(
        f"infra-check: fmt; {validations} validations with tests; local: {local_tests} test runs; "
        f"aws: validate against {aws.known} schemas of the AWS provider {PROVIDER_VERSION}; "
        f"{len(MISTAKES)} mistakes refused; {len(PROTECTED)} kinds are kept; {tests} test runs; "
        f"{policies} policies without wildcards beyond {len(WILDCARDS)} documented; {sizes} sizes; {lint}; {scan}; "
        f"nothing was applied"
    )


class Module:
    """A copy of a module, and a Terraform for it alone."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source = source
        # As it lies in a clone: it reads the alert rules.
        self.folder = folder / source.relative_to(ROOT)
        shutil.copytree(ROOT / "conf", folder / "conf")
        self.tools = Terraform(folder)
        self.environment = self.tools.environment
        self.copy()

    def copy(self) -> None:
        """Copy the module from the clone, without the files of anyone's `terraform init` and `make infra-software`."""
        left_out = shutil.ignore_patterns(".terraform*", "terraform.*", "*.auto.tfvars.json")
        shutil.copytree(self.source, self.folder, ignore=left_out, dirs_exist_ok=True)

    def terraform(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Call Terraform in the copy."""
        done = subprocess.run(
            ["terraform", *map(str, arguments)],
            cwd=self.folder, capture_output=True, text=True, check=False, env=self.environment,
        )  # fmt: skip
        if check and done.returncode:
            raise click.ClickException(f"terraform {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done

    def validate(self) -> None:
        """Have Terraform compare every argument with the schemas."""
        self.terraform("init", "-backend=false", "-input=false", "-no-color")
        self.terraform("validate", "-no-color")

    def run_tests(self, *arguments: str) -> list[dict[str, Any]]:
        """Run tests; return Terraform's report, line by line."""
        passed, events, said = self.try_tests(*arguments)
        if not passed:
            wrong = [event["diagnostic"] for event in events if event["type"] == "diagnostic"]
            text = "\n".join(f"{what['summary']}: {what['detail']} ({what.get('range', {})})" for what in wrong)
            raise click.ClickException(f"terraform test failed:\n{text}{said}")
        return events

    def try_tests(self, *arguments: str) -> tuple[bool, list[dict[str, Any]], str]:
        """Run tests; return whether they passed, Terraform's report, and what it said beside that."""
        done = self.terraform("test", "-json", *arguments, check=False)
        return done.returncode == 0, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class Aws(Module):
    """The module for AWS, with the provider of schemas in place of AWS's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(AWS, folder)
        (folder / "terraform.rc").write_text("")
        # Only Terraform knows which registry it would ask; a module without modules of its own shows it before `init`.
        shown = self.terraform(f"-chdir={self.folder / 'modules/network'}", "providers").stdout
        self.provider = re.findall(r"provider\[([^\]]+/aws)\]", shown)[0]
        self.schemas = schemas()
        self.known = len(json.loads(self.schemas.read_text()))
        self.tools.provide(self.provider, PROVIDER_VERSION, self.serve())

    def serve(self) -> list[str]:
        """Return the provider's command."""
        return [str(provider_python()), "-u", "-m", "aws_schema.provider", str(self.schemas)]

    def refuse_to_destroy(self) -> None:
        """Check that what is PROTECTED is not destroyed; let it be destroyed from then on, as README says."""
        protection = "-filter=tests/protection.tftest.hcl"
        run(self.folder / "unprotect")
        overrides = {file.read_text().split('"')[1]: file for file in self.folder.rglob("unprotected_override.tf")}
        if overrides.keys() != set(PROTECTED):
            raise click.ClickException(f"unprotect is for {sorted(overrides)}, expected {PROTECTED}")
        with self.standing():
            for kind, file in overrides.items():
                text = file.read_text()
                file.unlink()
                _, events, _ = self.try_tests(protection)
                file.write_text(text)
                said = " ".join(event["diagnostic"]["detail"] for event in events if event["type"] == "diagnostic")
                if not re.search(rf"Resource \S*{kind}\.\S+ has lifecycle.prevent_destroy set", said):
                    raise click.ClickException(f"Terraform destroys {kind}, which should be kept: {said[-1000:]}")
            self.run_tests(protection)

    def refuse_mistakes(self) -> None:
        """Check that each of MISTAKES is refused, so that a schema without content does not pass."""
        with self.standing():
            for what, (module, right, wrong, message) in MISTAKES.items():
                edited = False
                for file in (self.folder / "modules" / module).glob("*.tf"):
                    text = file.read_text()
                    edited |= right in text
                    file.write_text(text.replace(right, wrong, 1))
                done = self.terraform("validate", "-no-color", check=False)
                if not edited or done.returncode == 0 or message not in done.stderr + done.stdout:
                    raise click.ClickException(f"{what} was not refused as {message!r}:\n{done.stdout}{done.stderr}")
                self.copy()

    def test(self) -> tuple[int, int]:
        """Run the module's tests; return the number of runs that passed, and of policies that were read."""
        tests = sorted(file for file in (AWS / "tests").glob("*.tftest.hcl") if file.name not in LATER)
        with self.standing():
            events = self.run_tests(*(f"-filter=tests/{file.name}" for file in tests), "-verbose")
        whole = [event for event in events if event.get("@testfile") == "tests/cluster.tftest.hcl"]
        states = [event["test_state"]["root_module"] for event in whole if event["type"] == "test_state"]
        policies = dict(policy for state in states for policy in policies_of(state))
        for address, policy in policies.items():
            check_policy(address, policy)
        if len(policies) < POLICIES:
            raise click.ClickException(f"only {len(policies)} policies were found, expected at least {POLICIES}")
        return passed(events), len(policies)

    def test_sizes(self) -> int:
        """Run the test of sizes with each size's file; return their number."""
        sizes = sorted((AWS / "sizes").glob("*.tfvars"))
        with self.standing():
            for size in sizes:
                self.run_tests("-filter=tests/sizes.tftest.hcl", f"-var-file=sizes/{size.name}")
        return len(sizes)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let one process be the provider for all calls: Terraform would start a dozen for each run."""
        with subprocess.Popen(
            [*self.serve(), "--dev", self.provider], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "infra")},
        ) as process:  # fmt: skip
            assert process.stdout is not None
            found = next(filter(None, (re.search(r"TF_REATTACH_PROVIDERS='(.*)'", line) for line in process.stdout)))
            self.environment["TF_REATTACH_PROVIDERS"] = found[1]
            try:
                yield
            finally:
                del self.environment["TF_REATTACH_PROVIDERS"]
                process.send_signal(signal.SIGKILL)


def passed(events: list[dict[str, Any]]) -> int:
    """Return the number of runs that passed: all of them, since Terraform exited with 0."""
    return sum(event["type"] == "test_run" and event["test_run"].get("status") == "pass" for event in events)


def policies_of(module: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every policy in a state: its address, and its content."""
    for resource in module.get("resources", ()):
        for name in ("policy", "assume_role_policy"):
            text = resource["values"].get(name) or ""
            if text.startswith("{"):
                yield f"{resource['address']}.{name}", json.loads(text)
    for child in module.get("child_modules", ()):
        yield from policies_of(child)


def check_policy(address: str, policy: dict[str, Any]) -> None:
    """Refuse a statement that allows every action, or one on everything, unless it is documented."""
    for statement in policy["Statement"]:
        actions, resources = (listed(statement.get(part, [])) for part in ("Action", "Resource"))
        wide = any("*" in action for action in actions) or "*" in resources
        if statement["Effect"] == "Allow" and wide and statement.get("Sid") not in WILDCARDS:
            raise click.ClickException(f"{address}: {statement} allows too much: name the actions and the resources")


def listed(value: str | list[str]) -> list[str]:
    """Return a policy's field as a list, whether it is one text or several."""
    return [value] if isinstance(value, str) else value


def schemas() -> Path:
    """Return the file with the schemas of everything that the module uses; make it from the binding if needed."""
    names = {"provider"}
    for file in AWS.rglob("*.tf"):
        for kind, name in re.findall(r'^(resource|data) "(aws_\w+)"', file.read_text(), re.MULTILINE):
            names.add(f"data.{name}" if kind == "data" else name)
    lock = ROOT / "infra/aws_schema/requirements.lock"
    reader = ROOT / "infra/aws_schema/binding.py"
    digest = hashlib.sha256(lock.read_bytes() + reader.read_bytes() + " ".join(sorted(names)).encode())
    folder = cache_folder() / "aws-schema"
    path = folder / f"schemas-{digest.hexdigest()[:12]}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [BASE_PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        run(*pip, "--dest", folder, "--requirement", lock)
        (package,) = folder.glob("*.whl")
        draft = path.with_suffix(f".{os.getpid()}")
        write_schemas(package, sorted(names), draft)
        draft.rename(path)
    return path


def tflint() -> str:
    """Lint with tflint and its own rules for Terraform."""
    program = go_program("tflint")
    for module in (AWS, LOCAL):
        run(program, f"--chdir={module}", f"--config={AWS / '.tflint.hcl'}", "--recursive")
    return program.parent.name


def checkov() -> str:
    """Scan both modules with checkov, beside a mistake that it has to find; fix a finding, or skip it with a reason."""
    folder = tool_environment("checkov", ROOT / "infra/checkov/requirements.lock")
    with tempfile.TemporaryDirectory(dir=work_folder()) as scanned:
        for module in (AWS, LOCAL):
            # Its tests hold passwords, which are nobody's.
            left_out = shutil.ignore_patterns("tests", ".terraform*", "terraform.*", "*.auto.tfvars.json")
            shutil.copytree(module, Path(scanned) / module.name, ignore=left_out)
        (Path(scanned) / "mistake").mkdir()
        (Path(scanned) / "mistake/main.tf").write_text(MISTAKE)
        done = subprocess.run(
            [
                folder / "bin/checkov", "--directory", scanned,
                "--framework", "terraform", "secrets", "--output", "json", "--compact",
            ],
            capture_output=True, text=True, check=False,
            env={**os.environ, "BC_SKIP_MAPPING": "TRUE", "CHECKOV_RUN_SCA_PACKAGE_SCAN_V2": "false"},
        )  # fmt: skip
    try:
        reports = {report["check_type"]: report for report in json.loads(done.stdout)}
        resources, secrets = reports["terraform"], reports["secrets"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise click.ClickException(f"checkov failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}") from None
    failed = [check for report in reports.values() for check in report["results"]["failed_checks"]]
    ours = [check for check in failed if not check["file_path"].startswith("/mistake/")]
    if ours:
        text = "\n".join(f"{check['check_id']} {check['file_path']}: {check['check_name']}" for check in ours)
        raise click.ClickException(f"checkov found:\n{text}")
    if not MISTAKE_IS.issubset(check["check_id"] for check in failed):
        raise click.ClickException(f"checkov did not find the mistake in:\n{MISTAKE}")
    summary = resources["summary"]
    expected = sum(file.read_text().count('\nresource "') for module in (AWS, LOCAL) for file in module.rglob("*.tf"))
    unread = any(report["summary"]["parsing_errors"] for report in reports.values())
    if unread or summary["resource_count"] < expected or summary["passed"] == 0:
        raise click.ClickException(f"checkov read nothing, or not everything: {summary}, {secrets['summary']}")
    return (
        f"checkov {summary['checkov_version']}: {summary['passed']} passed, {summary['skipped']} skipped with a "
        f"reason, no secret in either, {len(MISTAKE_IS)} mistakes found"
    )


if __name__ == "__main__":
    main()

"""Both clusters declare the same, and each validation has its test; a module that lacks either is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import pytest
from declarations import check_interface, check_validations

MODULES = Path(__file__).parents[1] / "terraform"
AWS, LOCAL = MODULES / "aws", MODULES / "local"


@pytest.fixture(name="local")
def _local(tmp_path: Path) -> Path:
    """A copy of the local cluster, to break."""
    return Path(shutil.copytree(LOCAL, tmp_path / "local", ignore=shutil.ignore_patterns(".terraform*")))


def test_the_cluster_here_and_the_one_on_aws_say_the_same_of_themselves() -> None:
    check_interface(LOCAL, AWS)


@pytest.mark.parametrize(
    ("file", "said"), [("modules/kafka/outputs.tf", "module kafka lacks outputs"), ("outputs.tf", "not in both")]
)
def test_an_output_with_another_name_is_refused(local: Path, file: str, said: str) -> None:
    text = (local / file).read_text()
    (local / file).write_text(text.replace('output "', 'output "another_', 1))
    with pytest.raises(click.ClickException, match=said):
        check_interface(local, AWS)


@pytest.mark.parametrize("cluster", [LOCAL, AWS], ids=lambda path: path.name)
def test_each_validation_has_a_test(cluster: Path) -> None:
    assert check_validations(cluster) >= (cluster / "variables.tf").read_text().count("validation {") > 5


def test_a_validation_without_a_test_is_refused(local: Path) -> None:
    file = local / "tests/variables.tftest.hcl"
    file.write_text(file.read_text().replace("[var.cidr]", "[]"))
    with pytest.raises(click.ClickException, match="variable cidr has no test"):
        check_validations(local)

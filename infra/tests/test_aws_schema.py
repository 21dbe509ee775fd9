"""The reader of the AWS provider's binding, on a package of one resource, and the check of policies; no Terraform."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import check
import click
import pytest
from aws_schema.binding import BindingUnreadable, read_schemas

SCRIPT = """
function thingDiskToHclTerraform(struct) {
    const attrs = {
        size: {
            value: cdktf.numberToHclTerraform(struct.size),
            isBlock: false,
            type: "simple",
            storageClassType: "number",
        },
    };
    // remove undefined attributes
}
class Thing extends cdktf.TerraformResource {
    // dns_name - computed: true, optional: false, required: false
    get dnsName() {
        return this.getStringAttribute('dns_name');
    }
    synthesizeHclAttributes() {
        const attrs = {
            secret_wo: {
                value: cdktf.stringToHclTerraform(this._secretWo),
                isBlock: false,
                type: "simple",
                storageClassType: "string",
            },
            zone_names: {
                value: cdktf.listMapperHcl(cdktf.stringToHclTerraform, false)(this._zoneNames),
                isBlock: false,
                type: "set",
                storageClassType: "stringList",
            },
            disk: {
                value: thingDiskToHclTerraform(this._disk.internalValue),
                isBlock: true,
                type: "list",
                storageClassType: "ThingDiskList",
            },
        };
        // remove undefined attributes
    }
}
Thing.tfResourceType = "aws_thing";
"""
TYPES = """
export interface ThingConfig extends cdktf.TerraformMetaArguments {
    readonly secretWo?: string;
    readonly zoneNames: string[];
    readonly disk: ThingDisk;
}
export interface ThingDisk {
    readonly size: number;
}
"""


@pytest.fixture(name="package")
def _package(tmp_path: Path) -> Path:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        for name, text in {"index.js": SCRIPT, "index.d.ts": TYPES}.items():
            entry = tarfile.TarInfo(f"package/lib/thing/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    path = tmp_path / "binding.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("aws/_jsii/provider-aws@1.jsii.tgz", inner.getvalue())
    return path


def test_a_schema_has_names_types_blocks_and_what_is_required_computed_or_write_only(package: Path) -> None:
    disk = {"attributes": {"size": {"type": "number", "required": True}}, "blocks": {}}
    assert read_schemas(package, ["aws_thing"]) == {
        "aws_thing": {
            "attributes": {
                "secret_wo": {"type": "string", "optional": True, "computed": False, "write_only": True},
                "zone_names": {"type": ["set", "string"], "required": True},
                "dns_name": {"type": "string", "computed": True},
            },
            "blocks": {"disk": {"nesting": "list", "min": 1, "max": 1, "block": disk}},
        }
    }


def test_a_resource_that_the_binding_does_not_have_is_an_error(package: Path) -> None:
    with pytest.raises(BindingUnreadable, match="has no aws_thong"):
        read_schemas(package, ["aws_thong"])


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        ({"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::b/jobs/*"]}, False),
        ({"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::b/jobs/*"]}, True),
        ({"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}, True),
        ({"Sid": "Metrics", "Effect": "Allow", "Action": ["cloudwatch:PutMetricData"], "Resource": "*"}, False),
        ({"Effect": "Deny", "Action": "s3:*", "Resource": "*"}, False),
    ],
)
def test_a_policy_allows_no_wildcard_that_is_not_documented(statement: dict[str, object], refused: bool) -> None:
    if refused:
        with pytest.raises(click.ClickException, match="allows too much"):
            check.check_policy("here", {"Statement": [statement]})
    else:
        check.check_policy("here", {"Statement": [statement]})

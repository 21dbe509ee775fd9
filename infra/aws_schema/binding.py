"""Reader of the binding: the package `cdktf-cdktf-provider-aws`, generated from the AWS provider's own schemas.

For every resource the package holds a JavaScript file and its declarations. Three things in them make up a schema:

- each struct's attributes with their names in Terraform, whether one is a block, and whether it is a list or a set;
- TypeScript's interfaces: an attribute without `?` is required;
- comments at the getters of attributes that the provider alone computes.

Missing are: the optional attributes that are computed if they are not set, allowed values, arguments that exclude
each other, and the number of blocks in a list unless it is one or unlimited.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
"""`attributes`: name to its type and whether required, optional, computed, write_only; `blocks`: name to nesting, min,
max and block.
"""

_ENTRY = re.compile(
    r"^ +(?P<name>\w+): \{\n +value: (?P<value>.*),\n +isBlock: (?P<block>true|false),\n"
    r' +type: "(?P<type>\w+)",\n +storageClassType: "(?P<kind>\w+)",\n',
    re.MULTILINE,
)
_KNOWN = re.compile(
    r"// (?P<name>\w+) - computed: true, optional: false, required: false\n"
    r"(?: +this\.\w+ = new (?P<list>\w+?)(?:List|OutputReference)\(this, \"\w+\"(?:, (?P<set>true|false))?\);"
    r"| +get \w+\(\) \{\n +return (?P<value>.*);)"
)
_INTERFACE = re.compile(r"^export interface (\w+)[^{]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_PROPERTY = re.compile(r"^    readonly (\w+)(\??):", re.MULTILINE)
_SIMPLE = {"string": "string", "number": "number", "boolean": "bool"}
_GETTERS = {
    "this.getStringAttribute": "string",
    "this.getNumberAttribute": "number",
    "this.getBooleanAttribute": "bool",
    "this.getListAttribute": ["list", "string"],
    "this.getNumberListAttribute": ["list", "number"],
    "this.getStringMapAttribute": ["map", "string"],
    "cdktf.Fn.tolist": ["set", "string"],
}
_ALSO_COMPUTED = ("id", "tags_all", "region", "arn", "private_ip")
"""Optional attributes that the provider always fills in; of a data source, those are all."""


class BindingUnreadable(Exception):
    """The package is not as expected: another version, or without the resource."""


def read_schemas(package: Path, names: Iterable[str]) -> dict[str, Schema]:
    """Return the schemas of the resources `aws_NAME` or `data.aws_NAME`, and of `provider`.

    Args:
        package: The wheel.
        names: The resources.

    Raises:
        BindingUnreadable: one is missing, or the package cannot be understood.
    """
    folders = {name: _folder(name) for name in names}
    sources = dict(_sources(package, set(folders.values())))
    schemas = {}
    for name, folder in folders.items():
        script, types = sources.get(f"{folder}/index.js"), sources.get(f"{folder}/index.d.ts")
        if script is None or types is None:
            raise BindingUnreadable(f"{package.name} has no {name}; is it spelt as the provider documents it?")
        schemas[name] = _Source(script, types).schema(name)
    return schemas


def _folder(name: str) -> str:
    kind = name.removeprefix("data.").removeprefix("aws_").replace("_", "-")
    return f"data-aws-{kind}" if name.startswith("data.") else kind


def _sources(package: Path, folders: set[str]) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(package) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(wheel.read(name)), mode="r:gz") as archive:
            for member in archive:
                folder, _, file = member.name.removeprefix("package/lib/").rpartition("/")
                if folder in folders and file in ("index.js", "index.d.ts"):
                    content = archive.extractfile(member)
                    assert content is not None
                    yield f"{folder}/{file}", content.read().decode()


@dataclass(frozen=True, slots=True)
class _Source:
    """One resource's JavaScript and its declarations."""

    script: str
    types: str

    def schema(self, name: str) -> Schema:
        """Return the whole resource's schema."""
        found = re.search(r"^class (\w+) extends cdktf\.Terraform(?:Resource|DataSource|Provider) ", self.script, re.M)
        kind = f'tfResourceType = "{name.removeprefix("data.")}"'
        if found is None or (name != "provider" and kind not in self.script):
            raise BindingUnreadable(f"the binding's file of {name} is another resource's")
        own = self.script[found.start() :]
        required = self._required(f"{found[1]}Config")
        schema = self._block(own[own.index("synthesizeHclAttributes()") :], required)
        self._add_known(schema, own)
        if name.startswith("data."):
            # What may be given to find a thing is told of it, once found.
            for attribute in schema["attributes"].values():
                attribute.update({"computed": True} if attribute.get("optional") else {})
        return schema

    def _required(self, interface: str) -> set[str]:
        for name, body in _INTERFACE.findall(self.types):
            if name == interface:
                return {field for field, mark in _PROPERTY.findall(body) if not mark}
        raise BindingUnreadable(f"there is no interface {interface}")

    def _struct(self, function: str) -> Schema:
        """Return the schema of a struct: the entries of the function that turns it into HCL."""
        start = self.script.index(f"function {function}ToHclTerraform(")
        end = self.script.find("\nfunction ", start + 1)
        kind = function[0].upper() + function[1:]
        schema = self._block(self.script[start:end], self._required(kind))
        reference = re.search(rf"^class {kind}OutputReference .*?^\}}", self.script, re.MULTILINE | re.DOTALL)
        if reference is not None:
            self._add_known(schema, reference[0])
        return schema

    def _block(self, text: str, required: set[str]) -> Schema:
        attributes: dict[str, Any] = {}
        blocks: dict[str, Any] = {}
        for entry in _ENTRY.finditer(text.split("// remove undefined", 1)[0]):
            name, value = entry["name"], entry["value"]
            field = re.search(r"(?:struct\.|this\._)(\w+)", value)
            needed = field is not None and field[1] in required
            if entry["block"] == "true":
                self._add_struct(attributes, blocks, entry, needed=needed)
            else:
                attributes[name] = _given(name, _kind(entry), needed=needed)
        return {"attributes": attributes, "blocks": blocks}

    def _add_struct(
        self, attributes: dict[str, Any], blocks: dict[str, Any], entry: re.Match[str], *, needed: bool
    ) -> None:
        """Add a block, or an attribute that is a list of objects, which the binding also calls a block."""
        name, value = entry["name"], entry["value"]
        many = re.search(r"listMapperHcl\((\w+)ToHclTerraform, (true|false)\)", value)
        single = re.search(r"(\w+)ToHclTerraform\(", value)
        found = many or single
        if found is None:
            raise BindingUnreadable(f"{name}: {value}")
        inner = self._struct(found[1])
        if many is not None and many[2] == "false":
            attributes[name] = _given(name, [entry["type"], _object(inner)], needed=needed) | {"computed": not needed}
        elif entry["type"] == "struct":
            blocks[name] = {"nesting": "single", "min": 0, "max": 0, "block": inner}
        else:
            top = 0 if many is not None else 1
            blocks[name] = {"nesting": entry["type"], "min": int(needed), "max": top, "block": inner}

    def _add_known(self, schema: Schema, text: str) -> None:
        """Add the attributes that the provider alone computes."""
        for found in _KNOWN.finditer(text):
            name, attributes = found["name"], schema["attributes"]
            if found["list"] is not None:
                kind: Any = ["set" if found["set"] == "true" else "list", _object(self._struct(_lower(found["list"])))]
            elif found["value"].startswith("this._"):
                continue
            else:
                getter = found["value"].split("(")[0]
                if getter not in _GETTERS:
                    continue
                kind = _GETTERS[getter]
            attributes.setdefault(name, {"type": kind, "computed": True})


def _lower(name: str) -> str:
    return name[0].lower() + name[1:]


def _given(name: str, kind: Any, *, needed: bool) -> dict[str, Any]:
    if needed:
        return {"type": kind, "required": True}
    known = {"type": kind, "optional": True, "computed": name in _ALSO_COMPUTED}
    # In this provider, all arguments that never reach the state have such names.
    return known | ({"write_only": True} if name.endswith("_wo") else {})


def _kind(entry: re.Match[str]) -> Any:
    """Return the type, as Terraform writes it in JSON."""
    kind = entry["kind"]
    if entry["type"] == "simple" and kind in _SIMPLE:
        return _SIMPLE[kind]
    element = re.fullmatch(r"(string|number|boolean)(List|Map)(List|Map)?", kind)
    if element is None:
        raise BindingUnreadable(f"{entry['name']}: a type {kind} is not known")
    inner: Any = _SIMPLE[element[1]]
    if element[3]:
        inner = [element[2].lower(), inner]
    return [entry["type"], inner]


def _object(schema: Schema) -> Any:
    """Return a struct as a type: its attributes, and its blocks as lists or sets of objects."""
    fields = {name: attribute["type"] for name, attribute in schema["attributes"].items()}
    for name, block in schema["blocks"].items():
        inner = _object(block["block"])
        fields[name] = inner if block["nesting"] == "single" else [block["nesting"], inner]
    return ["object", fields]


def write_schemas(package: Path, names: Iterable[str], path: Path) -> None:
    """Write schemas as JSON, for the provider to read."""
    path.write_text(json.dumps(read_schemas(package, names), indent=1, sort_keys=True) + "\n")

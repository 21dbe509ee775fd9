"""Checks the image file and the chart without a registry or a cluster: `make packaging-check`.

hadolint reads the image file. Helm lints the chart and renders it, with its own values and with all optional parts. The
output is compared with the schemas that Kubernetes and the Spark operator publish; so is a broken copy of each
document, which has to be refused.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from kubeflow_spark_api.models import SparkV1beta2SparkApplication

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
IMAGE, CHART = HERE.parent / "image", HERE.parent / "helm/lowtide"
KUBERNETES = "1.37"
REFUSED = (jsonschema.ValidationError, kubernetes_validate.ValidationError)


def main() -> None:
    """Check everything; end with an error at the first fault."""
    run("hadolint", "--failure-threshold", "style", IMAGE / "Containerfile")
    run("bash", "-n", IMAGE / "entrypoint")
    print("image: hadolint has no complaint")
    program = run(ROOT / "tools/go-program", "build", "helm").strip()
    run(program, "lint", "--strict", CHART)
    for values in ([], ["--values", str(HERE / "values.yaml")]):
        rendered = run(program, "template", "orders", CHART, *values)
        kinds = [checked(document) for document in yaml.safe_load_all(rendered) if document]
        print(f"chart: {', '.join(kinds)} are what Kubernetes {KUBERNETES} and the Spark operator take")


def checked(document: dict[str, Any]) -> str:
    """Check that a document fits its schema, and would not with an unknown key; return its kind."""
    check = spark_application if document["kind"] == "SparkApplication" else kubernetes
    check(document)
    for path in ((), ("spec",), ("spec", "driver")):
        broken = copy.deepcopy(document)
        place = broken
        for key in path:
            place = place.get(key, {})
        place["nobodyKnows"] = "this"
        if broken != document and not refuses(check, broken):
            sys.exit(f"error: {document['kind']} is taken with a key that does not exist, so the check proves nothing")
    return str(document["kind"])


def kubernetes(document: dict[str, Any]) -> None:
    """Compare a document with the schema of Kubernetes' own kinds."""
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def spark_application(document: dict[str, Any]) -> None:
    """Compare a document with the schema of the Spark operator's published models."""
    schema = SparkV1beta2SparkApplication.model_json_schema(by_alias=True)
    for each in (schema, *schema["$defs"].values()):
        if "properties" in each:
            each["additionalProperties"] = False
    jsonschema.validate(document, schema)


def refuses(check: Callable[[dict[str, Any]], None], document: dict[str, Any]) -> bool:
    """Return whether a document is refused."""
    try:
        check(document)
    except REFUSED:
        return True
    return False


def run(*command: str | Path) -> str:
    """Run a command and return its output; if it fails, exit with that output."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
from hanging import HANGS_S

ASK_AIRFLOW = """
import json
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
info = manager.providers["lowtide-airflow"]
hook = manager.hooks["lowtide"]
links = [name for name in manager.extra_links_class_names if "lowtide" in name]
uri = "lowtide://orders/files/lake"
from airflow.sdk import Asset
try:
    refused = Asset("lowtide://orders/minutes").uri
except ValueError as error:
    refused = str(error)
made = manager.asset_factories["lowtide"](job="orders", what="files", sink="lake")
dataset = manager.asset_to_openlineage_converters["lowtide"].__name__
print(json.dumps({"uris": [Asset(uri).uri, made.uri, refused[:56], dataset],
                  "version": info.version, "name": info.data["name"], "hook": hook.hook_class_name,
                  "links": len(links), "modules": [each["python-modules"] for each in info.data["operators"]]}))
"""


def test_the_entry_point_leads_to_the_provider() -> None:
    (found,) = entry_points(group="apache_airflow_provider", value="lowtide_airflow:get_provider_info")
    info = found.load()()
    assert info["package-name"] == "lowtide-airflow"
    assert info["versions"] == [version("lowtide-airflow")]


@pytest.mark.airflow
def test_airflow_itself_loads_the_provider(tmp_path: Path) -> None:
    # In a process of its own: Airflow writes its folder when it is imported.
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    answer = subprocess.run(
        [sys.executable, "-c", ASK_AIRFLOW],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
    )
    assert json.loads(answer.stdout.splitlines()[-1]) == {
        "uris": [
            "lowtide://orders/files/lake",
            "lowtide://orders/files/lake",
            '"lowtide://orders/minutes" is no asset of a Lowtide job:',
            "convert_asset_to_openlineage",
        ],
        "version": version("lowtide-airflow"),
        "name": "Lowtide",
        "hook": "lowtide_airflow.hook.LowtideHook",
        "links": 2,
        "modules": [["lowtide_airflow.operators"]],
    }
    # Airflow 3.1 says of every hook's form that it needs a package which 3.1 itself does not bring.
    said = [line for line in answer.stderr.splitlines() if "flask_appbuilder" not in line]
    assert "lowtide" not in "\n".join(said)


def test_the_provider_does_not_need_spark() -> None:
    code = "import lowtide_airflow, sys; assert not {'pyspark', 'lowtide'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANGS_S)

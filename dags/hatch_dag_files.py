"""Build hook of the wheel: the DAG files and the pattern of a jobs file, which lie beside the package, go into it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DagFiles(BuildHookInterface[Any]):
    """Puts into the package what `lowtide airflow` writes where Airflow finds it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling; an editable install finds the files where they are."""
        if version != "editable":
            root = Path(self.root)
            for file in [*root.glob("lowtide_*.py"), root / "conf/airflow.toml"]:
                build_data["force_include"][str(file)] = f"lowtide_airflow/dag_files/{file.name}"

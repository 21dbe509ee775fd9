"""Every DAG that the documents show can be read by Airflow, and every operator has one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

ROOT = Path(__file__).parents[2]
PAGES = ("docs/airflow-operators.md", "docs/airflow.md", "dags/README.md")
ALL_BLOCKS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
READERS_OWN = "import duckdb\n"
"""What a reader may have, and Airflow need not."""


def blocks() -> list[Any]:
    found = []
    for page in PAGES:
        texts = [text for text in ALL_BLOCKS.findall((ROOT / page).read_text()) if "with DAG(" in text]
        assert texts, page
        found += [pytest.param(text, id=f"{page}-{number}") for number, text in enumerate(texts)]
    return found


@pytest.mark.parametrize("text", blocks())
def test_every_dag_of_the_documents_can_be_read_and_stored(text: str, tmp_path: Path) -> None:
    from airflow_names import DagBag, DagSerialization

    file = tmp_path / "documented.py"
    file.write_text(text.replace(READERS_OWN, ""))
    bag = DagBag(dag_folder=str(file))
    assert bag.import_errors == {}
    assert len(bag.dags) == text.count("with DAG(")
    for dag in bag.dags.values():
        assert DagSerialization.to_dict(dag)


def test_every_operator_and_sensor_has_a_dag_that_shows_it() -> None:
    from lowtide_airflow import operators, sensors

    page = "".join(ALL_BLOCKS.findall((ROOT / PAGES[0]).read_text()))
    for name in (*operators.__all__, *sensors.__all__, "LowtideNotifier", "task.lowtide", "MessageQueueTrigger"):
        assert f"{name}(" in page, name


def test_every_argument_of_a_start_is_named() -> None:
    from lowtide_airflow.operators import RunFlowOperator
    from lowtide_airflow.operators.job import StartOperator

    text = (ROOT / PAGES[0]).read_text()
    for kind in (RunFlowOperator, StartOperator):
        for name in set(inspect.signature(kind.__init__).parameters) - {"self", "kwargs"}:
            assert f"`{name}`" in text, name

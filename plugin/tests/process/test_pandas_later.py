"""pandas is imported when somebody wants it; pyarrow treats its objects as it always does. In processes of its own."""

import subprocess
import sys

from hanging import HANGS_S

PREAMBLE = """
import sys
from lowtide.process.pandas_later import leave_pandas_for_later
leave_pandas_for_later()
import pyarrow as pa
assert pa.array([1, None]).to_pylist() == [1, None]
assert "pandas" not in sys.modules, "pyarrow has imported it"
"""


def ran(program: str) -> str:
    """A program's output."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pyarrow_does_not_import_it() -> None:
    ran(PREAMBLE)


def test_who_imports_it_has_pyarrow_know_its_objects() -> None:
    program = """
import pandas as pd
print(pa.array(pd.Series([1.0, None])).null_count, pa.array(pd.Categorical(["a", "b"])).type)
print(type(pd.__spec__.loader).__name__, pd.read_csv.__module__)
"""
    plain = ran("import pyarrow as pa\n" + program)
    assert ran(PREAMBLE + program) == plain
    assert plain.startswith("1 dictionary<values=string")


def test_what_pyarrow_turns_into_pandas_imports_it() -> None:
    assert ran(PREAMBLE + "print(pa.table({'n': [1]}).to_pandas()['n'].sum())") == "1\n"


def test_what_only_looks_for_it_does_not_import_it() -> None:
    """As pyspark does at its first call of the JVM; what others import afterwards is known."""
    program = """
leave_pandas_for_later("pyspark.testing.utils")
from pyspark.testing.utils import have_numpy, have_pandas
assert have_numpy and not have_pandas and "pandas" not in sys.modules
import pandas as pd
print(pa.array(pd.Categorical(["a"])).type)
"""
    assert ran(PREAMBLE + program).startswith("dictionary<values=string")


def test_where_it_is_there_already_nothing_changes() -> None:
    ran("import sys, pandas, lowtide.process.pandas_later as later\nbefore = list(sys.meta_path)\n"
        "later.leave_pandas_for_later()\nassert sys.meta_path == before")  # fmt: skip


def test_the_command_line_compiles_a_flow_without_it() -> None:
    program = """
import runpy, sys
sys.argv = ["lowtide", "check", "--no-calls", "examples/inverted_index.py"]
try:
    runpy.run_module("lowtide.cli", run_name="__main__")
except SystemExit as end:
    assert not end.code
print("pandas" in sys.modules)
"""
    assert ran(program).splitlines()[-1] == "False"

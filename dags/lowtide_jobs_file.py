"""Shows the mistakes of the jobs file as one import error; it makes no DAG.

The other DAG files make the DAGs of every job that has no mistake, and of one that has, those that do not need the key.
"""

from pathlib import Path

from lowtide_airflow.errors import JobsFileRefused
from lowtide_airflow.jobs_file import read_mistakes

if mistakes := read_mistakes(Path(__file__).parent):
    raise JobsFileRefused(
        "the jobs file has mistakes; other jobs are not affected\n\n" + "\n\n".join(map(str, mistakes))
    )

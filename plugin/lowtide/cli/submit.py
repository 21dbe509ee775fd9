"""`lowtide submit-args`: the arguments for spark-submit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lowtide.cli.options import with_conf
from lowtide.conf import Conf, parse_settings
from lowtide.driver.session import launch_settings, settings
from lowtide.driver.spark_conf import PREFIX
from lowtide.errors import ConfError
from lowtide.jobs.jvm import LOGGING
from lowtide_snapshots.redaction import shown

_OPTIONS = "spark.driver.extraJavaOptions"
_DRIVER, _EXECUTORS = "spark.pyspark.driver.python", "spark.pyspark.python"


@click.command("submit-args")
@click.argument("flow", required=False)
@with_conf
def submit_args(conf: Conf, flow: str | None) -> None:
    """Print the arguments for `spark-submit $(lowtide submit-args flow.py)`.

    Without FLOW they end before the program: `spark-submit $(lowtide submit-args --conf FILE) flow.py --conf FILE`;
    each --set goes into Spark's conf. With it, the program and its --conf and --set are among them. What Spark
    says goes into the job's log, unless spark.driver.extraJavaOptions are set in the conf.
    """
    given = click.get_current_context().params
    click.echo(" ".join([*arguments(conf), *_program(flow, given["conf_file"], given["conf_settings"])]))


def _program(flow: str | None, conf_file: Path | None, conf_settings: Sequence[str]) -> list[str]:
    """Return the program with the options of this command, for spark-submit to hand on; its settings without a flow."""
    if flow is None:
        words = [
            word
            for key, value in parse_settings(conf_settings).items()
            for word in ("--conf", f"{PREFIX}{key}={value}")
        ]
    else:
        words = [flow, *(("--conf", str(conf_file)) if conf_file is not None else ())]
        words += [word for setting in conf_settings for word in ("--set", setting)]
    for word in words:
        if any(map(str.isspace, word)):
            raise ConfError(
                f"{word!r} holds white space, which cannot be handed over on a command line made by $(…)",
                way_out="name another path, or put the setting into the conf file",
            )
    return words


def arguments(conf: Conf) -> list[str]:
    """Return spark-submit's arguments.

    Raises:
        ConfError: a value holds white space, at which the shell would cut it.
        JarMissing: as `lowtide run`.
    """
    options = f"-Dlog4j2.configurationFile={LOGGING}"
    known = {**launch_settings(conf), _DRIVER: sys.executable, _OPTIONS: options, **settings(conf)}
    if conf.spark.master.startswith("local"):
        known.setdefault(_EXECUTORS, sys.executable)
    for key, value in known.items():
        if any(map(str.isspace, value)):
            raise ConfError(
                f"{key} holds white space, which cannot be handed over on a command line made by $(…)",
                where=f"its value is {shown(key, value)!r}",
                way_out="set it in Spark's own conf/spark-defaults.conf",
            )
    command = ["--master", known.pop("spark.master"), "--jars", known.pop("spark.jars")]
    return [*command, *(text for key, value in known.items() for text in ("--conf", f"{key}={value}"))]

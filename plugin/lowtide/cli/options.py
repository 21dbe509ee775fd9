"""The options that many commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click

from lowtide.conf import PARAMETERS, Conf, parse_settings
from lowtide.driver.spark_conf import conf_settings as conf_settings_of_spark
from lowtide.errors import ConfError
from lowtide.flow.parameters import give


def with_conf(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--conf FILE` and `--set TABLE.KEY=VALUE`; it gets the checked `Conf` as `conf`.

    The flows that the command loads are given `[job.parameters]`. Keys of Spark's conf (`spark.lowtide.TABLE.KEY`) win
    over the file, and `--set` wins over both.
    """

    @click.option("--conf", "conf_file", type=click.Path(path_type=Path), help="The conf file; without it, defaults.")
    @click.option("--set", "conf_settings", multiple=True, metavar="TABLE.KEY=VALUE", help="Set one key of the conf.")
    @wraps(command)
    def loaded(*args: Any, conf_file: Path | None, conf_settings: tuple[str, ...], **kwargs: Any) -> Any:
        return command(*args, conf=_loaded(conf_file, conf_settings), **kwargs)

    return loaded


def give_from_arguments(arguments: Sequence[str]) -> None:
    """Give the parameters of a command line to the flow of a program that is about to run itself.

    Nothing is given where the conf cannot be read: the program's command says so when it comes to it.
    """
    options = click.Command("program", params=[_CONF, _SET], context_settings=_LAX)
    with suppress(ConfError, click.ClickException):
        found = options.make_context("program", list(arguments)).params
        _loaded(found["conf_file"], found["conf_settings"])


def _loaded(file: Path | None, settings: Sequence[str]) -> Conf:
    """Return the conf, and give its parameters to the flows that are loaded from now on."""
    overrides, of_spark = parse_settings(settings), conf_settings_of_spark()
    conf = Conf.load(file, overrides, spark=of_spark)
    named = (key.partition(PARAMETERS) for key in (*of_spark, *overrides))
    give(conf.job.parameters, [name for before, found, name in named if found and not before])
    return conf


_CONF = click.Option(["--conf", "conf_file"], type=click.Path(path_type=Path))
_SET = click.Option(["--set", "conf_settings"], multiple=True)
_LAX = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

"""The options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from lowtide.conf import Conf, parse_settings
from lowtide.driver.spark_conf import conf_settings as conf_settings_of_spark


def with_conf(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--conf FILE` and `--set TABLE.KEY=VALUE`; it gets the checked `Conf` as `conf`.

    Keys of Spark's conf (`spark.lowtide.TABLE.KEY`) win over the file, and `--set` wins over both.
    """

    @click.option("--conf", "conf_file", type=click.Path(path_type=Path), help="The conf file; without it, defaults.")
    @click.option("--set", "conf_settings", multiple=True, metavar="TABLE.KEY=VALUE", help="Set one key of the conf.")
    @wraps(command)
    def loaded(*args: Any, conf_file: Path | None, conf_settings: tuple[str, ...], **kwargs: Any) -> Any:
        conf = Conf.load(conf_file, parse_settings(conf_settings), spark=conf_settings_of_spark())
        return command(*args, conf=conf, **kwargs)

    return loaded


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

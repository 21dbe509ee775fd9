"""The configuration: one typed TOML file per environment, every limit with its name and unit.

    conf = Conf.load(Path("conf/cluster.toml"), parse_settings(["epoch.duration_s=60"]))
    conf.exchange.units

Without a file everything has its default, which is the embedded environment on loopback: `conf/embedded.toml` says the
same, with a comment for each key. Relative paths are relative to the working directory. Nothing is read at import.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from msgspec import ValidationError, convert

from lowtide.conf.client_properties import check_properties
from lowtide.conf.tables import (
    ControlConf,
    EmbeddedConf,
    EpochConf,
    ExchangeConf,
    FilesConf,
    HttpConf,
    IcebergConf,
    JobConf,
    KafkaConf,
    PostgresConf,
    RedisConf,
    RegistryConf,
    SnapshotsConf,
    SparkConf,
    StateConf,
    TracesConf,
    TrackerConf,
    WorkerConf,
    ZooKeeperConf,
)
from lowtide.errors import ConfError
from lowtide_snapshots.redaction import redacted

PARAMETERS = "job.parameters."
"""The prefix of a flow's parameters."""
NAMED: Mapping[str, Any] = {
    "registry": RegistryConf,
    "postgres": PostgresConf,
    "files": FilesConf,
    "iceberg": IcebergConf,
    "redis": RedisConf,
    "elasticsearch": HttpConf,
    "http": HttpConf,
}
"""Tables of tables, each of which has a name of the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """The whole configuration, one attribute per table of the file."""

    job: JobConf = field(default_factory=JobConf)
    kafka: KafkaConf = field(default_factory=KafkaConf)
    zookeeper: ZooKeeperConf = field(default_factory=ZooKeeperConf)
    spark: SparkConf = field(default_factory=SparkConf)
    exchange: ExchangeConf = field(default_factory=ExchangeConf)
    worker: WorkerConf = field(default_factory=WorkerConf)
    snapshots: SnapshotsConf = field(default_factory=SnapshotsConf)
    state: StateConf = field(default_factory=StateConf)
    epoch: EpochConf = field(default_factory=EpochConf)
    control: ControlConf = field(default_factory=ControlConf)
    tracker: TrackerConf = field(default_factory=TrackerConf)
    traces: TracesConf = field(default_factory=TracesConf)
    embedded: EmbeddedConf = field(default_factory=EmbeddedConf)
    registry: dict[str, RegistryConf] = field(default_factory=dict)
    postgres: dict[str, PostgresConf] = field(default_factory=dict)
    files: dict[str, FilesConf] = field(default_factory=dict)
    iceberg: dict[str, IcebergConf] = field(default_factory=dict)
    redis: dict[str, RedisConf] = field(default_factory=dict)
    elasticsearch: dict[str, HttpConf] = field(default_factory=dict)
    http: dict[str, HttpConf] = field(default_factory=dict)

    @classmethod
    def load(
        cls,
        path: Path | None = None,
        overrides: Mapping[str, object] | None = None,
        *,
        spark: Mapping[str, str] | None = None,
    ) -> Self:
        """Read a file, put Spark's keys and then the overrides on top, and check everything.

        Args:
            path: the TOML file; None takes the defaults.
            overrides: `{"table.key": value}`; text is converted to the key's type, as in `--set`.
            spark: `{"table.key": value}` of Spark's conf, where each is named `spark.lowtide.table.key`.

        Raises:
            ConfError: the file cannot be read, a key is unknown, or a value has the wrong type or is out of range.
        """
        tables = {} if path is None else _read(path)
        file = "the defaults" if path is None else str(path)
        _check_keys(tables, file)
        conf: Self = _convert(tables, cls, file, ())
        given: list[tuple[str, object, str]]
        given = [(key, value, f"spark.lowtide.{key} in Spark's conf") for key, value in (spark or {}).items()]
        given += [(key, value, f"--set {key}") for key, value in (overrides or {}).items()]
        for key, value, where in given:
            conf = _with(conf, tuple(key.split(".")), value, where)
        _check_together(conf, file)
        return conf


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Return `{"table.key": "value"}` from `table.key=value` texts, as `--set` takes them.

    Raises:
        ConfError: a text is not of that form.
    """
    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or "." not in key:
            raise ConfError(
                f"cannot read the setting {redacted([setting])[0][0]!r}",
                where="--set",
                way_out="write --set table.key=value, for instance --set kafka.bootstrap_servers=127.0.0.1:9092",
            )
        key = key.strip()
        # A flow may be given a separator.
        parsed[key] = value if key.startswith(PARAMETERS) else value.strip()
    return parsed


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfError(
            f"the conf file cannot be read: {error.strerror}",
            where=str(path),
            way_out="correct the path, or leave it out for the embedded environment",
        ) from error
    except ValueError as error:
        raise ConfError(f"the conf file is not TOML: {error}", where=str(path), way_out="correct it there") from error


def _check_keys(tables: Mapping[str, Any], file: str) -> None:
    known = _keys(Conf)
    for table, content in tables.items():
        if table not in known:
            raise _unknown((table,), file)
        if not isinstance(content, dict):
            raise ConfError(f"`{table}` is a table, not a value", where=file, way_out=f"write [{table}]")
        if table in NAMED:
            _check_named(table, content, file)
            continue
        for key in content:
            if key not in _keys(known[table]):
                raise _unknown((table, key), file)


def _check_named(table: str, tables: Mapping[str, Any], file: str) -> None:
    for name, content in tables.items():
        if not isinstance(content, dict):
            raise ConfError(f"`{name}` in [{table}] is not a table", where=file, way_out=f"write [{table}.default]")
        for key in content:
            if key not in _keys(NAMED[table]):
                known = ", ".join(_keys(NAMED[table]))
                what = f"unknown key `{key}` in [{table}.{name}]"
                raise ConfError(what, where=file, way_out=f"There are: {known}")


def _unknown(path: tuple[str, ...], where: str) -> ConfError:
    """Return the error for a missing table or key, with the nearest one that exists."""
    table, *keys = path
    tables = _keys(Conf)
    if not keys or table not in tables:
        what, known = f"unknown table [{table}]", list(tables)
        near = [f"[{name}]" for name in difflib.get_close_matches(table, known, n=1, cutoff=0.5)]
    else:
        what, known = f"unknown key `{keys[0]}` in [{table}]", list(_keys(tables[table]))
        near = [f"`{name}`" for name in difflib.get_close_matches(keys[0], known, n=1, cutoff=0.5)]
        elsewhere = [f"`{keys[0]}` in [{name}]" for name, kind in tables.items() if keys[0] in _keys(kind)]
        near = elsewhere[:1] or near
    guess = f"did you mean {near[0]}? " if near else ""
    return ConfError(what, where=where, way_out=f"{guess}There are: {', '.join(known)}")


def _with(conf: Any, path: tuple[str, ...], value: object, where: str) -> Any:
    """Return the conf with one value replaced; a path into a table of free keys may have dots in the key."""
    table, key, *rest = (*path, "")
    if table in NAMED:
        return _with_named(conf, path, value, where)
    tables = _keys(Conf)
    if table in tables and not key:
        raise ConfError(f"`{table}` is a table, not a value", where=where, way_out=f"write {table}.key=value")
    if table not in tables or key not in _keys(tables[table]):
        raise _unknown((table, key), where)
    content = getattr(conf, table)
    kind = _keys(tables[table])[key]
    free_key = ".".join(rest[:-1])
    if isinstance(getattr(content, key), dict) and free_key:
        value = {**getattr(content, key), free_key: str(value)}
    elif free_key:
        raise _unknown((table, ".".join(path[1:])), where)
    typed = _convert(value, kind, where, (table, key), strict=not isinstance(value, str))
    return dataclasses.replace(conf, **{table: dataclasses.replace(content, **{key: typed})})


def _with_named(conf: Any, path: tuple[str, ...], value: object, where: str) -> Any:
    """Return the conf with one value of `TABLE.NAME.key` replaced."""
    if len(path) != 3:
        raise ConfError(f"`{'.'.join(path)}` names no key", where=where, way_out=f"write {path[0]}.NAME.key=value")
    table, name, key = path
    tables, kind = getattr(conf, table), NAMED[table]
    known = tables.get(name)
    given = {} if known is None else {each: getattr(known, each) for each in _keys(kind)}
    content = {name: {**given, key: value}}
    _check_named(table, content, where)
    made = _convert(content[name], kind, where, (table, name), strict=not isinstance(value, str))
    return dataclasses.replace(conf, **{table: {**tables, name: made}})


def _convert(value: object, kind: Any, where: str, path: tuple[str, ...], *, strict: bool = True) -> Any:
    try:
        return convert(value, kind, strict=strict)
    except ValidationError as error:
        what, _, inner = str(error).partition(" - at `$")
        inside = inner.replace("[...]", "").strip("`.").split(".") if inner else []
        table, *keys = (*path, *inside)
        given: Any = value
        for key in inside:
            given = given.get(key) if isinstance(given, dict) else None
        raise ConfError(
            f"[{table}] {'.'.join(keys)}: {what[0].lower()}{what[1:]}",
            where=where,
            way_out=f"give it {_wanted(table, keys[0], given)}; `lowtide conf embedded` explains each key",
        ) from None


def _wanted(table: str, key: str, given: object) -> str:
    """Return in words what a key takes, where its type alone does not say it; `given` may be a choice in lower case."""
    kind = _keys(_keys(Conf)[table]).get(key)
    described = [meta.description for meta in getattr(kind, "__metadata__", ()) if meta.description]
    choices = [choice for part in (kind, *get_args(kind)) if get_origin(part) is Literal for choice in get_args(part)]
    if isinstance(given, str) and given.upper() in choices:
        return given.upper()
    return described[0] if described else f"one of {', '.join(choices)}" if choices else "a value of that kind"


def _check_together(conf: Conf, where: str) -> None:
    check_properties(conf.kafka.properties, where)
    for name in conf.spark.properties:
        if name.startswith("spark.lowtide."):
            raise ConfError(
                f"[spark.properties] has `{name}`, which is a key of this conf",
                where=where,
                way_out="set it in its own table; spark.lowtide.TABLE.KEY is for Spark's own conf",
            )
    if conf.tracker.graph is not None and conf.job.delivery != "exactly_once":
        raise ConfError(
            f'[tracker] graph is set, and [job] delivery is "{conf.job.delivery}": jobs wait for what another one has '
            "delivered for good, and such a job never says that",
            where=where,
            way_out='choose delivery = "exactly_once", or leave graph out',
        )
    if conf.tracker.relay and conf.tracker.shards > 1:
        raise ConfError(
            f"[tracker] relay is set, and shards are {conf.tracker.shards}: a relay has one connection to one tracker",
            where=where,
            way_out="leave one of them out; a relay where notices are too many, shards where acks are (docs/scale.md)",
        )
    lanes = conf.job.lanes or conf.job.parallelism
    if not conf.job.parallelism <= lanes <= conf.exchange.units:
        raise ConfError(
            f"[job] parallelism is {conf.job.parallelism}, [job] lanes {lanes}, [exchange] units {conf.exchange.units}",
            where=where,
            way_out="choose parallelism <= lanes <= units: a lane has one worker, a hash unit one lane",
        )


def _keys(kind: Any) -> dict[str, Any]:
    """Return the types of a table's keys, in their order; none of a table of tables."""
    if get_origin(kind) is dict:
        return {}
    return get_type_hints(kind, include_extras=True)


# msgspec crashes where a second thread converts to a dataclass that it is still looking at for the first time; a module
# is imported by one thread.
convert({}, Conf)

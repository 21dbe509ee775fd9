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
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from msgspec import Meta, ValidationError, convert

from lowtide.errors import ConfError

__all__ = [
    "Conf",
    "ControlConf",
    "EmbeddedConf",
    "EpochConf",
    "ExchangeConf",
    "JobConf",
    "KafkaConf",
    "SparkConf",
    "WorkerConf",
    "ZooKeeperConf",
    "parse_settings",
]

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Milliseconds = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Text = Annotated[str, Meta(min_length=1)]
Memory = Annotated[str, Meta(pattern="^[1-9][0-9]*[kmgt]$", description="a number and k, m, g or t, as in 512m")]
Addresses = Annotated[
    str, Meta(pattern=r"^[^\s,]+:[0-9]+(,[^\s,]+:[0-9]+)*$", description="host:port, several with commas")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConf:
    """How a flow is run: parallelism, lanes and order of the levels after the first, and where the job keeps its files.

    `slack_ms` is how long a tick is: records of different partitions that lie further apart keep their order.
    `tracking` off is for measuring what tracking costs: records are delivered in the order they come, at least once.
    """

    folder: Text = ".lowtide/jobs"
    parallelism: Positive = 2
    lanes: Positive | None = None
    slack_ms: Positive = 2
    grouping: Literal["optimistic", "ordered"] = "optimistic"
    optimism_ms: Positive = 50
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    tracking: Literal["on", "off"] = "on"
    allowed_skew_ms: Milliseconds = 2
    max_future_ms: Milliseconds = 60_000
    max_front_lead_ms: Positive = 10_000
    max_front_bytes: Annotated[int, Meta(ge=1 << 10)] = 64 << 20
    max_bundle_records: Positive = 10_000
    stall_limit_ms: Positive = 60_000
    start_limit_s: Seconds = 60.0
    stop_limit_s: Seconds = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConf:
    """Where Kafka is and how one gets in; `lowtide.kafka_access` turns it into each client's settings.

    A secret never stands in the file: `…_env` names an environment variable that holds it, `…_file` a file.
    """

    bootstrap: Addresses = "127.0.0.1:9092"
    reach_limit_ms: Positive = 10_000
    delivery_limit_ms: Positive = 30_000
    outage_limit_ms: Positive = 60_000
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: Text | None = None
    sasl_password_env: Text | None = None
    sasl_password_file: Text | None = None
    ssl_ca_file: Text | None = None
    ssl_certificate_file: Text | None = None
    ssl_key_file: Text | None = None
    ssl_key_password_env: Text | None = None
    ssl_key_password_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConf:
    """Where ZooKeeper is and how one gets in: the job's record, lease and front register are kept there.

    The auth is `user:password` of ZooKeeper's digest scheme; `auth_env` names a variable that holds it, `auth_file` a
    file.
    """

    hosts: Addresses = "127.0.0.1:2181"
    root: Annotated[str, Meta(pattern="^[^/].*$", description="a path without a slash before it")] = "lowtide"
    session_timeout_s: Annotated[float, Meta(ge=1)] = 6.0
    reach_limit_s: Seconds = 10.0
    auth_env: Text | None = None
    auth_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConf:
    """Spark's master, memory and checkpoints; `properties` are handed to Spark as they are, after ours."""

    master: Text = "local[8]"
    driver_memory: Memory = "1g"
    executor_memory: Memory = "1g"
    checkpoint_folder: Text = ".lowtide/checkpoints"
    log_level: Literal["ERROR", "WARN", "INFO", "DEBUG"] = "WARN"
    web_ui: bool = False
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConf:
    """What goes from worker to worker: hash units, and when a frame is full or has waited long enough."""

    units: Annotated[int, Meta(ge=1, le=1 << 15)] = 128
    frame_bytes: Annotated[int, Meta(ge=1 << 10, le=1 << 24)] = 224 << 10
    max_frame_bytes: Annotated[int, Meta(ge=1 << 10, le=1 << 27)] = 4 << 20
    max_frame_rows: Annotated[int, Meta(ge=1, le=1 << 20)] = 8192
    linger_ms: Milliseconds = 3
    network_wait_ms: Positive = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConf:
    """Limits of the Python processes that run the levels."""

    start_limit_s: Seconds = 20.0
    attach_limit_s: Seconds = 60.0
    max_queued_bytes: Annotated[int, Meta(ge=1 << 16)] = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochConf:
    """Spark's epochs: how long one is."""

    duration_s: Annotated[float, Meta(ge=5)] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConf:
    """Where the running job's control API listens, port 0 takes a free one; `token_file` holds its token."""

    host: Text = "127.0.0.1"
    port: Port = 0
    token_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConf:
    """The Kafka and ZooKeeper that Lowtide runs itself, on loopback; port 0 takes a free one."""

    enabled: bool = True
    folder: Text = ".lowtide/services"
    kafka_port: Port = 9092
    zookeeper_port: Port = 2181


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """The whole configuration, one attribute per table of the file."""

    job: JobConf = JobConf()
    kafka: KafkaConf = KafkaConf()
    zookeeper: ZooKeeperConf = ZooKeeperConf()
    spark: SparkConf = field(default_factory=SparkConf)
    exchange: ExchangeConf = ExchangeConf()
    worker: WorkerConf = WorkerConf()
    epoch: EpochConf = EpochConf()
    control: ControlConf = ControlConf()
    embedded: EmbeddedConf = EmbeddedConf()

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, object] | None = None) -> Self:
        """Read a file, put the overrides on top, and check everything.

        Args:
            path: the TOML file; None takes the defaults.
            overrides: `{"table.key": value}`; text is read as what the key wants, as in `--set`.

        Raises:
            ConfError: the file cannot be read, a key is unknown, or a value has the wrong type or is out of range.
        """
        tables = {} if path is None else _read(path)
        file = "the defaults" if path is None else str(path)
        _check_keys(tables, file)
        conf: Self = _convert(tables, cls, file, ())
        for key, value in (overrides or {}).items():
            conf = _with(conf, tuple(key.split(".")), value, f"--set {key}")
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
                f"cannot read the setting {setting!r}",
                where="--set",
                way_out="write --set table.key=value, for instance --set kafka.bootstrap=127.0.0.1:9092",
            )
        parsed[key.strip()] = value.strip()
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
        for key in content:
            if key not in _keys(known[table]):
                raise _unknown((table, key), file)


def _unknown(path: tuple[str, ...], where: str) -> ConfError:
    """Return the error for a table or key that is not there, with the nearest one that is."""
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


def _convert(value: object, kind: Any, where: str, path: tuple[str, ...], *, strict: bool = True) -> Any:
    try:
        return convert(value, kind, strict=strict)
    except ValidationError as error:
        what, _, inner = str(error).partition(" - at `$")
        table, *keys = (*path, *inner.strip("`.").split(".")) if inner else path
        raise ConfError(
            f"[{table}] {'.'.join(keys)}: {what[0].lower()}{what[1:]}",
            where=where,
            way_out=f"give it {_wanted(table, keys[0])}; conf/embedded.toml says what each key means",
        ) from None


def _wanted(table: str, key: str) -> str:
    """Return in words what a key takes, where its type alone does not say it."""
    kind = _keys(_keys(Conf)[table]).get(key)
    described = [meta.description for meta in getattr(kind, "__metadata__", ()) if meta.description]
    choices = [choice for part in (kind, *get_args(kind)) if get_origin(part) is Literal for choice in get_args(part)]
    return described[0] if described else f"one of {', '.join(choices)}" if choices else "a value of that kind"


def _check_together(conf: Conf, where: str) -> None:
    if conf.job.tracking == "off" and conf.job.delivery == "exactly_once":
        raise ConfError(
            "[job] tracking is off, and [job] delivery exactly_once: without tracking there is no order to go by",
            where=where,
            way_out="set job.delivery to at_least_once as well, or leave tracking on",
        )
    lanes = conf.job.lanes or conf.job.parallelism
    if not conf.job.parallelism <= lanes <= conf.exchange.units:
        raise ConfError(
            f"[job] parallelism is {conf.job.parallelism}, [job] lanes {lanes}, [exchange] units {conf.exchange.units}",
            where=where,
            way_out="choose parallelism <= lanes <= units: a lane has one worker, a hash unit one lane",
        )


def _keys(kind: Any) -> dict[str, Any]:
    """Return the types of a table's keys, in their order."""
    return get_type_hints(kind, include_extras=True)

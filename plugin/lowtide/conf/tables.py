"""The tables of the configuration, with each key's type, bounds and default; `lowtide.conf` reads them from a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

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
    """The job: parallelism, lanes and order of the levels after the first, its limits and its folder.

    `slack_ms` is the length of a tick: records of different partitions that are further apart keep their order.
    `early_keys` lets the lanes of one worker go on without those of others, where nothing that fails may forbid it; by
    default where that costs little (`lowtide.flow.plan.compiler.EARLY_KEYS_UP_TO`).
    `submission` is the key of this start: a retry with the same key begins no second life. Give it on a command line.
    `parameters` are the flow's own, which it asks for by `flow.parameter(name, default)`.
    """

    folder: Text = ".lowtide/jobs"
    submission: Text | None = None
    parallelism: Positive = 2
    lanes: Positive | None = None
    slack_ms: Positive = 2
    grouping: Literal["optimistic", "ordered"] = "optimistic"
    early_keys: bool | None = None
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    allowed_skew_ms: Milliseconds = 2
    max_future_ms: Milliseconds = 60_000
    max_front_lead_ms: Positive = 120_000
    max_front_bytes: Annotated[int, Meta(ge=1 << 10)] = 1 << 20
    max_staged_bytes: Positive = 8 << 30
    max_bundle_records: Positive = 10_000
    stall_limit_ms: Positive = 60_000
    start_limit_s: Seconds = 60.0
    stop_limit_s: Seconds = 30.0
    restarts: Annotated[int, Meta(ge=0)] = 5
    restarts_within_s: Seconds = 600.0
    parameters: dict[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConf:
    """Kafka's address and credentials; `lowtide.connectors.kafka_access` turns them into each client's settings.

    The file never holds a secret: `…_env` names an environment variable that holds it, `…_file` a file.
    `properties` are further ones of the clients, by librdkafka's names; `lowtide.conf.client_properties` has which.
    `report_lag_to` names a consumer group that gets the sources' offsets of each commit, for tools that show its lag.
    """

    bootstrap_servers: Addresses = "127.0.0.1:9092"
    reach_limit_ms: Positive = 10_000
    delivery_limit_ms: Positive = 30_000
    outage_limit_ms: Positive = 60_000
    transaction_pace_ms: Milliseconds = 0
    transactions: Literal["auto", "v1", "v2"] = "auto"
    report_lag_to: Text | None = None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: Text | None = None
    sasl_password_env: Text | None = None
    sasl_password_file: Text | None = None
    ssl_ca_file: Text | None = None
    ssl_certificate_file: Text | None = None
    ssl_key_file: Text | None = None
    ssl_key_password_env: Text | None = None
    ssl_key_password_file: Text | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConf:
    """A schema registry, for `lt.avro(..., registry=NAME)`: one table `[registry.NAME]` for each.

    The conf never holds the password: `password_env` names an environment variable that holds it, `password_file` a
    file.
    """

    url: Annotated[str, Meta(pattern=r"^https?://[^\s]+$", description="http://host:port or https://host:port")]
    username: Text | None = None
    password_env: Text | None = None
    password_file: Text | None = None
    ssl_ca_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConf:
    """A PostgreSQL, for `lt.postgres(..., connection=NAME)`: one table `[postgres.NAME]` for each.

    The conf never holds a secret: `…_env` names an environment variable that holds it, `…_file` a file. A `dsn` is a
    connection string or URI as libpq takes it; the other keys win over it.
    """

    host: Text | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    dbname: Text | None = None
    user: Text | None = None
    password_env: Text | None = None
    password_file: Text | None = None
    dsn_env: Text | None = None
    dsn_file: Text | None = None
    ssl_ca_file: Text | None = None
    ssl_certificate_file: Text | None = None
    ssl_key_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConf:
    """An S3 server, for `lt.files(..., connection=NAME)`: one table `[files.NAME]` for each; folders need none.

    S3 credentials come in boto3's standard ways, never from here.
    """

    endpoint: Text | None = None
    region: Text | None = None
    profile: Text | None = None
    request_limit_s: Seconds = 30.0
    scratch: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergConf:
    """An Iceberg catalog, for `lt.iceberg(..., catalog=NAME)`: one table `[iceberg.NAME]` for each.

    The conf never holds a secret: `…_env` names an environment variable that holds it, `…_file` a file. S3 credentials
    come in the standard ways of AWS.
    """

    type: Text | None = None
    uri: Text | None = None
    uri_env: Text | None = None
    uri_file: Text | None = None
    warehouse: Text | None = None
    credential_env: Text | None = None
    credential_file: Text | None = None
    token_env: Text | None = None
    token_file: Text | None = None
    endpoint: Text | None = None
    region: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConf:
    """A Redis, for `lt.redis(NAME)`: one table `[redis.NAME]` for each.

    The conf never holds the password: `password_env` names an environment variable that holds it, `password_file` a
    file.
    """

    url: Annotated[
        str,
        Meta(pattern=r"^rediss?://[^\s@]+$", description="redis://host:port/0 or rediss://..., no login in it"),
    ]
    username: Text | None = None
    password_env: Text | None = None
    password_file: Text | None = None
    ssl_ca_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConf:
    """A server, for `lt.http(NAME)` or `lt.elasticsearch(NAME)`: `[http.NAME]` or `[elasticsearch.NAME]` for each.

    The login is a username and a password, or a token (Elasticsearch's API key). The conf never holds a secret:
    `…_env` names an environment variable that holds it, `…_file` a file.
    """

    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s@/?#][^\s@?#]*$",
            description="http://... or https://..., no login in it",
        ),
    ]
    username: Text | None = None
    password_env: Text | None = None
    password_file: Text | None = None
    token_env: Text | None = None
    token_file: Text | None = None
    ssl_ca_file: Text | None = None
    ssl_certificate_file: Text | None = None
    ssl_key_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConf:
    """ZooKeeper's address and credentials: it keeps the job's record, lease and front register.

    The auth is `user:password` of ZooKeeper's digest scheme; `auth_env` names a variable that holds it, `auth_file` a
    file. With `ssl_ca_file` the connection is under TLS; `hosts` then have ZooKeeper's secure ports. Some servers ask
    for a certificate.
    """

    hosts: Addresses = "127.0.0.1:2181"
    root: Annotated[str, Meta(pattern="^[^/].*$", description="a path without a slash before it")] = "lowtide"
    session_timeout_s: Annotated[float, Meta(ge=1)] = 6.0
    reach_limit_s: Seconds = 10.0
    auth_env: Text | None = None
    auth_file: Text | None = None
    ssl_ca_file: Text | None = None
    ssl_certificate_file: Text | None = None
    ssl_key_file: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConf:
    """Spark's master, memory and checkpoints; `properties` are handed to Spark as they are, after ours.

    With a `class_archive` Spark's JVM starts in half the time: the first job that runs has one made in the background.
    """

    master: Text = "local[8]"
    driver_memory: Memory = "1g"
    executor_memory: Memory = "1g"
    checkpoint_folder: Text = ".lowtide/checkpoints"
    log_level: Literal["ERROR", "WARN", "INFO", "DEBUG"] = "WARN"
    web_ui: bool = False
    class_archive: bool = True
    properties: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConf:
    """The exchange between workers: hash units, the size of a full frame, and how long Spark waits for more.

    Frames are `sealed` (AES-GCM) on their way between hosts, as Spark carries them in the clear: `auto` seals them
    where executors are processes of their own. So does `tls` with the connections between a job's processes; with a
    local master these are over Unix sockets else.
    """

    units: Annotated[int, Meta(ge=1, le=1 << 15)] = 128
    sealed: Literal["auto", "always", "never"] = "auto"
    tls: Literal["auto", "always", "never"] = "auto"
    frame_bytes: Annotated[int, Meta(ge=1 << 10, le=1 << 24)] = 224 << 10
    max_frame_bytes: Annotated[int, Meta(ge=1 << 10, le=1 << 27)] = 4 << 20
    max_frame_rows: Annotated[int, Meta(ge=1, le=1 << 20)] = 8192
    network_wait_ms: Positive = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConf:
    """The Python processes that run the levels, and their limits; 0 `processes` for half the executor's cores."""

    processes: Annotated[int, Meta(ge=0, le=1024)] = 0
    start_limit_s: Seconds = 20.0
    attach_limit_s: Seconds = 60.0
    load_limit_s: Seconds = 1800.0
    call_limit_s: Seconds = 300.0
    max_queued_bytes: Annotated[int, Meta(ge=1 << 16)] = 32 << 20
    max_join_bytes: Annotated[int, Meta(ge=1 << 20)] = 1 << 30
    max_call_bytes: Annotated[int, Meta(ge=1 << 10)] = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsConf:
    """The snapshots' store and retention; a folder must be visible to every executor.

    Credentials come in the standard ways of boto3 and of Azure, never from here. `account` is Azure's,
    `memory_mb` the limit of snapshots in the memory of the job's service (`memory:`).
    """

    url: Text = ".lowtide/snapshots"
    endpoint: Text | None = None
    region: Text | None = None
    profile: Text | None = None
    account: Text | None = None
    memory_mb: Positive = 256
    request_limit_s: Seconds = 30.0
    taking_limit_s: Seconds = 600.0
    max_commit_age_s: Annotated[float, Meta(ge=0)] = 3600.0
    keep: Positive = 10
    max_age_s: Seconds | None = None


Backend = Annotated[Literal["memory", "disk"], Meta(description="memory or disk")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConf:
    """The place of the state of steps by key: in memory, or on disk but for the keys that were used last.

    It changes no output and may change at each start. `steps` are those that differ, by name. `memory_mb` and
    `disk_max_gb` are limits of each process, `folder` is on every machine and needs a disk of its own, no network's.
    `copies_max_gb` is for copies of snapshots' parts there, of all processes of a machine; 0: none.
    """

    backend: Backend = "memory"
    memory_mb: Annotated[int, Meta(ge=0)] = 256
    disk_max_gb: Annotated[float, Meta(gt=0)] = 64.0
    copies_max_gb: Annotated[float, Meta(ge=0)] = 0.0
    folder: Text = ".lowtide/state"
    steps: dict[str, Backend] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochConf:
    """Spark's epochs: their length."""

    duration_s: Annotated[float, Meta(ge=5)] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConf:
    """The control API's address, token and certificate; port 0 takes a free one.

    `tls_cert` and `tls_key` are PEM files; without them each life makes its own certificate.
    """

    host: Text = "127.0.0.1"
    port: Port = 0
    token_file: Text | None = None
    tls_cert: Text | None = None
    tls_key: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerConf:
    """The job's tracker, and the one that several jobs share where they are connected by topics (`lowtide tracker`).

    `shards` processes divide the job's acks among them; 1 is a single tracker. `after` names the jobs whose topics
    this one reads, with commas: the job waits until they have reported. The conf never holds the secret, which all
    jobs of the graph share. With `tls:` before `host:port` in `graph`, its tracker and the jobs talk under TLS.

    `flush_ms` is the local trackers' window: a host gathers acks and heartbeats for so long before it sends them, so it
    bounds what tracking adds to a record's latency at each level, and the messages of a host to 1000 / `flush_ms` a
    second. It changes no output and may change at each start.

    With `relay` the hosts of an executor have one connection to the tracker, by a process that sums up for `flush_ms`
    what they send, and gives out notices. It is for jobs with hundreds of hosts, and not with `shards`.
    """

    shards: Annotated[int, Meta(ge=1, le=64, description="from 1 to 64")] = 1
    flush_ms: Annotated[float, Meta(ge=0, le=1000, description="from 0 to 1000")] = 2.0
    relay: bool = False
    graph: Annotated[str, Meta(pattern=r"^[^\s,]+:[0-9]+$", description="one host:port, or tls:host:port")] | None = (
        None
    )
    after: Text | None = None
    secret_env: Text | None = None
    secret_file: Text | None = None

    @property
    def jobs_before(self) -> tuple[str, ...]:
        """The names in `after`."""
        return tuple(name.strip() for name in (self.after or "").split(",") if name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesConf:
    """Traces of sampled records, sent to an OpenTelemetry collector by OTLP over HTTP; off without an endpoint.

    `ratio` is the share of source records that are traced. It changes no output and may change at each start. The hosts
    of workers read OTLP's other settings from their environment, `OTEL_EXPORTER_OTLP_HEADERS` with a login among them.
    """

    endpoint: (
        Annotated[
            str,
            Meta(
                pattern=r"^https?://[^\s@/?#][^\s@?#]*$",
                description="http://host:4318 or https://..., no login in it",
            ),
        ]
        | None
    ) = None
    ratio: Annotated[float, Meta(ge=0, le=1, description="from 0 to 1")] = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConf:
    """The Kafka and ZooKeeper that Lowtide runs itself, on loopback; port 0 takes a free one."""

    enabled: bool = True
    folder: Text = ".lowtide/services"
    kafka_port: Port = 9092
    zookeeper_port: Port = 2181

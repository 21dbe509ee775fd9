"""The configuration: `Conf` and its tables, and how its secrets, stores and ZooKeeper are reached."""

from lowtide.conf.conf import PARAMETERS, Conf, parse_settings
from lowtide.conf.tables import (
    ControlConf,
    EmbeddedConf,
    EpochConf,
    ExchangeConf,
    HttpConf,
    JobConf,
    KafkaConf,
    PostgresConf,
    RedisConf,
    RegistryConf,
    SnapshotsConf,
    SparkConf,
    StateConf,
    WorkerConf,
    ZooKeeperConf,
)

__all__ = [
    "PARAMETERS",
    "Conf",
    "ControlConf",
    "EmbeddedConf",
    "EpochConf",
    "ExchangeConf",
    "HttpConf",
    "JobConf",
    "KafkaConf",
    "PostgresConf",
    "RedisConf",
    "RegistryConf",
    "SnapshotsConf",
    "SparkConf",
    "StateConf",
    "WorkerConf",
    "ZooKeeperConf",
    "parse_settings",
]

"""The configuration: `Conf` and its tables, and how its secrets, stores and ZooKeeper are reached."""

from lowtide.conf.conf import Conf, parse_settings
from lowtide.conf.tables import (
    ControlConf,
    EmbeddedConf,
    EpochConf,
    ExchangeConf,
    JobConf,
    KafkaConf,
    RegistryConf,
    SnapshotsConf,
    SparkConf,
    WorkerConf,
    ZooKeeperConf,
)

__all__ = [
    "Conf",
    "ControlConf",
    "EmbeddedConf",
    "EpochConf",
    "ExchangeConf",
    "JobConf",
    "KafkaConf",
    "RegistryConf",
    "SnapshotsConf",
    "SparkConf",
    "WorkerConf",
    "ZooKeeperConf",
    "parse_settings",
]

"""The configuration: `Conf` and its tables, and how its secrets, stores and ZooKeeper are reached."""

from lowtide.conf.conf import (
    Conf,
    ControlConf,
    EmbeddedConf,
    EpochConf,
    ExchangeConf,
    JobConf,
    KafkaConf,
    SnapshotsConf,
    SparkConf,
    WorkerConf,
    ZooKeeperConf,
    parse_settings,
)

__all__ = [
    "Conf",
    "ControlConf",
    "EmbeddedConf",
    "EpochConf",
    "ExchangeConf",
    "JobConf",
    "KafkaConf",
    "SnapshotsConf",
    "SparkConf",
    "WorkerConf",
    "ZooKeeperConf",
    "parse_settings",
]

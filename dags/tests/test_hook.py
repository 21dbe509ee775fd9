"""The Airflow connection: its fields, and each fault of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lowtide_airflow.errors import ConnectionInvalid
from lowtide_snapshots.zookeeper.tls import ZooKeeperTls

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Any:
    from lowtide_airflow.hook import LowtideHook

    monkeypatch.setenv("AIRFLOW_CONN_LOWTIDE_TEST", json.dumps({"conn_type": "lowtide", **fields}))
    return LowtideHook("lowtide_test")


def test_a_connection_says_where_jobs_are_and_with_what_they_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide_airflow.hook import Programs

    extra = {
        "root": "streams", "snapshots_url": "s3://bucket/prefix", "s3_endpoint": "http://s3", "s3_region": "eu",
        "azure_account": "one", "azure_endpoint": "http://az",
        "zookeeper_password": "user:password", "zookeeper_ca_file": "/etc/ca.pem",
        "lowtide": "/opt/bin/lowtide", "conf": "/etc/lowtide.toml",
        "folder": "/var", "spark_submit": "/opt/spark-submit",
    }  # fmt: skip
    hook = connect(monkeypatch, host="zk-1, zk-2:2182", port=2281, password=" token\n", extra=extra)
    services = hook.get_conn()
    assert (services.zookeeper, services.root, services.token) == ("zk-1:2281,zk-2:2182", "streams", "token")
    assert (services.snapshots_url, services.s3_endpoint, services.s3_region) == (
        "s3://bucket/prefix",
        "http://s3",
        "eu",
    )
    assert (services.azure_account, services.azure_endpoint) == ("one", "http://az")
    assert hook.programs() == Programs("/opt/bin/lowtide", "/etc/lowtide.toml", "/var", "/opt/spark-submit")
    assert services.zookeeper_tls == ZooKeeperTls("/etc/ca.pem")
    assert "token" not in repr(services)
    assert "password" not in repr(services)


def test_a_connection_with_a_host_alone_has_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide_airflow.hook import Programs

    hook = connect(monkeypatch, host="zk")
    services = hook.get_conn()
    assert (services.zookeeper, services.root, services.snapshots_url, services.token) == (
        "zk:2181",
        "lowtide",
        "",
        None,
    )
    assert hook.programs() == Programs()


@contextmanager
def read_by_airflow() -> Iterator[None]:
    """Skip the test where Airflow itself refuses a connection with such a field, as Airflow 3.0 does."""
    from lowtide_airflow.compat import AirflowNotFoundException

    try:
        yield
    except AirflowNotFoundException:
        pytest.skip("this Airflow refuses such a field by itself")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "ZooKeeper's address is missing"),
        ({"host": "zk", "extra": {"rot": "x"}}, "unknown extra fields: rot"),
        ({"host": "zk", "extra": {"zookeeper_key_file": "key.pem"}}, "TLS to ZooKeeper needs zookeeper_ca_file"),
        ({"host": "zk", "extra": {"root": 1}}, "root is not a text"),
        ({"host": "zk", "extra": '{"root": "streams",'}, "field extra is not JSON at line 1, column 20"),
        ({"host": "zk", "extra": "root=streams"}, "field extra is not JSON at line 1"),
        ({"host": "zk", "extra": '["streams"]'}, "field extra is JSON but not an object"),
    ],
)
def test_a_field_that_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConnectionInvalid, match=f"{says}(?s:.*)'lowtide_test'"), read_by_airflow():
        connect(monkeypatch, **fields).get_conn()


def test_a_fault_of_the_extra_field_shows_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionInvalid) as raised, read_by_airflow():
        connect(monkeypatch, host="zk", extra='{"zookeeper_password": "user:hunter2"').get_conn()
    assert "hunter2" not in str(raised.value)


@pytest.mark.zookeeper
def test_the_button_of_the_connections_page_asks_zookeeper_and_the_store(
    monkeypatch: pytest.MonkeyPatch, zookeeper: str, tmp_path: Any
) -> None:
    good = connect(monkeypatch, host=zookeeper, extra={"snapshots_url": str(tmp_path)})
    assert good.test_connection()[0]
    bad = connect(monkeypatch, host=zookeeper, extra={"snapshots_url": "ftp://x"})
    good_at_all, says = bad.test_connection()
    assert not good_at_all
    assert "not the URL of a store" in says


def test_the_form_of_the_connection_has_every_field_that_is_read() -> None:
    from lowtide_airflow.provider_info import FIELDS, provider_info

    (kind,) = provider_info("1")["connection-types"]
    assert kind["connection-type"] == "lowtide"
    assert set(FIELDS) == {
        "root", "snapshots_url", "s3_endpoint", "s3_region", "azure_account", "azure_endpoint", "zookeeper_password",
        "zookeeper_ca_file", "zookeeper_certificate_file", "zookeeper_key_file",
        "lowtide", "conf", "folder", "spark_submit",
    }  # fmt: skip
    assert FIELDS["zookeeper_password"]["schema"]["format"] == "password"


def test_airflow_takes_the_connections_secrets_for_secrets() -> None:
    from airflow_names import redact

    from lowtide_airflow.provider_info import FIELDS

    secret = [name for name, field in FIELDS.items() if field["schema"].get("format") == "password"]
    assert secret
    assert redact(dict.fromkeys(secret, "user:word")) == dict.fromkeys(secret, "***")

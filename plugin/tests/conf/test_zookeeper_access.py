"""ZooKeeper's secret is read where the conf says, at the moment of use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lowtide.conf import ZooKeeperConf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.errors import ConfError


def conf(**set_: Any) -> ZooKeeperConf:
    return ZooKeeperConf(**set_)


def test_a_secret_comes_from_the_variable_or_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ZooKeeperAccess.of(conf()).auth is None
    monkeypatch.setenv("ZK_AUTH", "ann:of the variable")
    assert ZooKeeperAccess.of(conf(auth_env="ZK_AUTH")).auth == "ann:of the variable"
    (tmp_path / "auth").write_text("ann:of the file \n")
    assert ZooKeeperAccess.of(conf(auth_file=str(tmp_path / "auth"))).auth == "ann:of the file "


@pytest.mark.parametrize(
    ("set_", "said"),
    [
        ({"auth_env": "ZK_NOT_SET"}, "variable ZK_NOT_SET, which is not set"),
        ({"auth_file": "/no/such/file"}, "which cannot be read"),
        ({"auth_env": "ZK_BAD", "auth_file": "/no/such/file"}, "both auth_env and auth_file"),
        ({"auth_env": "ZK_BAD"}, "not of the form user:password"),
    ],
)
def test_a_secret_that_cannot_be_had_is_said_without_showing_it(
    set_: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZK_BAD", "hunter2")
    with pytest.raises(ConfError, match=said) as caught:
        ZooKeeperAccess.of(conf(**set_))
    assert "hunter2" not in str(caught.value)

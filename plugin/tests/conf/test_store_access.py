"""The store that `[snapshots]` names, and `lowtide doctor`'s question to it."""

from __future__ import annotations

from typing import Any

import pytest

from lowtide.conf import Conf
from lowtide.conf.store_access import store_setting
from lowtide.doctor import Surroundings
from lowtide.doctor.services import store
from lowtide_snapshots.stores import StoreSetting


def conf_of(**snapshots: str) -> Conf:
    return Conf.load(None, {f"snapshots.{name}": value for name, value in snapshots.items()})


def test_a_store_in_azure_has_an_account_or_an_endpoint() -> None:
    url = "az://container/jobs"
    assert store_setting(conf_of(url=url, account="one").snapshots) == StoreSetting(url, account="one")
    elsewhere = conf_of(url=url, endpoint="http://127.0.0.1:10000/one", request_limit_s="5")
    assert store_setting(elsewhere.snapshots) == StoreSetting(url, endpoint="http://127.0.0.1:10000/one", limit_s=5.0)


@pytest.mark.azure
def test_doctor_writes_to_azure_and_says_what_is_missing(azurite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"url": f"az://{azurite.make_container()}/jobs", "endpoint": azurite.endpoint, "account": "lowtide"}
    answer = store(Surroundings(conf_of(**there)))
    assert (answer.verdict, answer.found.partition(" at ")[0]) == ("ok", f"snapshots can be written to {there['url']}")
    missing = store(Surroundings(conf_of(**there | {"url": "az://no-such-container"})))
    assert (missing.verdict, missing.way_out) == ("fail", "create the container, or correct the store's URL")
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    assert "HTTPS" in store(Surroundings(conf_of(**there))).found


def test_snapshots_in_memory_have_a_limit_and_doctor_says_when_they_end() -> None:
    conf = conf_of(url="memory:", memory_mb="32")
    assert store_setting(conf.snapshots) == StoreSetting("memory:", memory_mb=32)
    answer = store(Surroundings(conf))
    assert (answer.verdict, "32 MB" in answer.found, "end with its program" in answer.found) == ("ok", True, True)

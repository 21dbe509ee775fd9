"""The store in Azure through a proxy that fails: faults that pass, puts whose answer was lost, damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from azurite import ACCOUNT, Azurite
from faulty_proxy import Fault, FaultyProxy
from hanging import HANGS_S
from store_contract import SMALL, took_s

from lowtide_snapshots import SnapshotsError
from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_snapshots.stores.errors import (
    AlreadyThere,
    StoreDamaged,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

pytest.importorskip("azure.storage.blob", reason="azure-storage-blob is an extra")
pytestmark = pytest.mark.azure

LIMIT_S = 4.5
LARGE = bytes(range(251)) * 80_000
ANSWERS_500 = Fault(status=500)
ANSWERS_503 = Fault(status=503, code="ServerBusy")
LOST = Fault(closed=True)
APPLIED_AND_LOST = Fault(applied=True, closed=True)
APPLIED_AND_500 = Fault(applied=True, status=500)
PASSING = {
    "500": ANSWERS_500,
    "503": ANSWERS_503,
    "lost": LOST,
    "slow": Fault(pause_s=2.0, closed=True),
    "applied and lost": APPLIED_AND_LOST,
    "applied and 500": APPLIED_AND_500,
    "spoilt answer": Fault(edit=lambda body: body.replace(b"be", b"bi")),
    "cut": Fault(cut=True),
    "no XML": Fault(edit=lambda body: body and b"<html>try later"),
}


Opened = tuple[FaultyProxy, Store, Store, Store]


@pytest.fixture(name="opened", scope="module")
def _opened(azurite: Azurite) -> Iterator[Opened]:
    url = f"az://{azurite.make_container()}/root"
    with FaultyProxy(azurite.port) as proxy:
        faulty = StoreSetting(url, endpoint=f"{proxy.endpoint}/{ACCOUNT}", account=ACCOUNT)
        yield (
            proxy,
            open_store(replace(faulty, limit_s=LIMIT_S)),
            open_store(StoreSetting(url, endpoint=azurite.endpoint, account=ACCOUNT)),
            open_store(replace(faulty, limit_s=HANGS_S)),
        )


@pytest.fixture
def proxy(opened: Opened) -> FaultyProxy:
    """A proxy that passes all on as yet."""
    opened[0].begin_anew()
    return opened[0]


@pytest.fixture
def patient(opened: Opened) -> Store:
    """A store behind the proxy that tries nothing again because it was slow."""
    return opened[3]


@pytest.fixture
def direct(opened: Opened) -> Store:
    """An empty store."""
    opened[2].delete([entry.name for entry in opened[2].names("")])
    return opened[2]


@pytest.fixture
def hasty(opened: Opened, proxy: FaultyProxy, direct: Store) -> Store:
    """The same one, through the proxy."""
    return opened[1]


@pytest.fixture
def store(hasty: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """It gives up a try as soon as that one, and tries again for as long as it takes."""
    monkeypatch.setattr(hasty._tries, "_limit_s", HANGS_S)  # type: ignore[attr-defined]
    return hasty


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
@pytest.mark.parametrize("request_of", ["PUT", "GET", "HEAD", "DELETE"])
def test_what_passes_is_waited_for(
    proxy: FaultyProxy, store: Store, direct: Store, fault: Fault, request_of: str
) -> None:
    proxy.fail(request_of, fault, times=1 if fault.pause_s or fault.edit else 2)
    store.put("a", SMALL)
    assert store.get("a") == SMALL
    assert [entry.name for entry in store.names("")] == ["a"]
    store.delete(["a"])
    assert direct.names("") == []


def test_what_is_spoilt_on_the_way_is_not_taken(proxy: FaultyProxy, store: Store, direct: Store) -> None:
    proxy.fail("PUT", Fault(spoil=lambda body: body.replace(b"be", b"bi")), times=2)
    store.put("a", SMALL)
    assert direct.get("a") == SMALL


@pytest.mark.parametrize("fault", [APPLIED_AND_LOST, APPLIED_AND_500], ids=["lost", "500"])
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_a_put_whose_answers_are_all_lost_is_read_back(
    proxy: FaultyProxy, patient: Store, direct: Store, fault: Fault, data: bytes
) -> None:
    proxy.fail("PUT", fault, times=2)
    patient.put("a", data)
    assert direct.get("a") == data
    assert sum(seen.startswith("PUT") for seen in proxy.seen) <= 4 + len(data) // 2**23


def test_an_object_of_another_is_not_taken_for_ours_after_a_lost_answer(
    proxy: FaultyProxy, store: Store, direct: Store
) -> None:
    direct.put("a", SMALL[::-1])
    proxy.fail("PUT", LOST)
    with pytest.raises(AlreadyThere):
        store.put("a", SMALL)


def test_each_request_of_a_large_put_may_fail(proxy: FaultyProxy, store: Store, direct: Store) -> None:
    for request in ("PUT", "HEAD"):
        proxy.fail(request, ANSWERS_503)
        proxy.fail(request, APPLIED_AND_500)
    store.put("large", LARGE)
    assert direct.get("large") == LARGE


def test_what_fails_for_long_is_given_up_in_time_and_leaves_nothing(
    proxy: FaultyProxy, hasty: Store, direct: Store
) -> None:
    proxy.fail("", ANSWERS_503, times=100)
    for act in (
        lambda: hasty.put("a", SMALL),
        lambda: hasty.names(""),
    ):
        assert took_s(lambda act=act: _refused(StoreUnavailable, act)) < HANGS_S  # type: ignore[misc]
    # Growing pauses: it does not hammer a server that is in trouble.
    assert len(proxy.seen) < 40
    assert direct.names("") == []


def test_an_upload_that_silently_failed_is_noticed(proxy: FaultyProxy, store: Store, direct: Store) -> None:
    proxy.fail("PUT", Fault(status=201), times=2)
    store.put("a", SMALL)
    assert direct.get("a") == SMALL


def test_an_upload_that_was_silently_truncated_is_noticed(proxy: FaultyProxy, store: Store, direct: Store) -> None:
    direct.put("a", SMALL[:5])
    proxy.fail("PUT", Fault(status=201))
    _refused(StoreDamaged, lambda: store.put("a", SMALL))


def test_an_object_that_always_comes_changed_is_damaged(proxy: FaultyProxy, store: Store) -> None:
    store.put("a", SMALL)
    proxy.seen.clear()
    proxy.fail("GET", PASSING["spoilt answer"], times=20)
    error = _refused(StoreDamaged, lambda: store.get("a"))
    assert "SHA-256" in str(error)
    assert len(proxy.seen) == 2


@pytest.mark.parametrize(
    ("status", "code", "kind", "said"),
    [
        (403, "AuthorizationPermissionMismatch", StoreRefused, "Storage Blob Data Contributor"),
        (403, "AuthorizationFailure", StoreRefused, "network rules"),
        (403, "AuthenticationFailed", StoreRefused, "this machine's clock"),
        (403, "NeverHeardOf", StoreRefused, "correct the credentials"),
        (404, "ContainerNotFound", StoreRefused, "create the container"),
        (409, "ContainerBeingDeleted", StoreRefused, "wait until the container"),
        (501, "NotImplemented", StoreRefused, "If-None-Match"),
        (507, "", StoreFull, "make room"),
    ],
)
def test_what_does_not_pass_is_said_at_once(
    proxy: FaultyProxy, store: Store, status: int, code: str, kind: type[SnapshotsError], said: str
) -> None:
    proxy.fail("PUT", Fault(status=status, code=code), times=20)
    assert said in str(_refused(kind, lambda: store.put("a", SMALL)))
    assert len(proxy.seen) <= (2 if status >= 500 else 1)


def test_a_server_that_lets_objects_be_changed_is_refused(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the header If-None-Match, and puts what comes."""
    place = f"az://{azurite.make_container()}"
    store = open_store(StoreSetting(place, endpoint=azurite.endpoint, account=ACCOUNT))
    from azure.storage.blob import BlobClient

    upload = BlobClient.upload_blob
    monkeypatch.setattr(
        BlobClient, "upload_blob", lambda *given, **asked: upload(*given, **asked | {"overwrite": True})
    )
    assert "no conditional put" in str(_refused(StoreRefused, store.check))
    assert store.names("") == []


def test_an_object_that_cannot_be_deleted_is_said(proxy: FaultyProxy, store: Store) -> None:
    store.put("a", SMALL)
    store.put("b", SMALL)
    proxy.fail(f"DELETE /{ACCOUNT}", Fault(status=409, code="BlobImmutableDueToPolicy"))
    assert "immutability" in str(_refused(StoreRefused, lambda: store.delete(["a", "b"])))
    assert len(store.names("")) == 1


def test_an_answer_that_comes_in_drops_is_given_up(proxy: FaultyProxy, hasty: Store, direct: Store) -> None:
    direct.put("large", LARGE[:2_000_000])
    proxy.fail("GET", Fault(drop_s=0.5), times=20)
    assert took_s(lambda: _refused(StoreUnavailable, lambda: hasty.get("large"))) < HANGS_S


def test_an_object_that_changes_while_it_is_read_is_not_taken(
    proxy: FaultyProxy, patient: Store, direct: Store
) -> None:
    """Nothing here changes one; somebody else may have."""
    direct.put("large", LARGE)

    def change(body: bytes) -> bytes:
        direct.delete(["large"])
        direct.put("large", LARGE[::-1])
        return body

    # Not asked again while it changes, however long that takes: between the two it is not there.
    proxy.fail("GET", Fault(edit=change))
    _refused(StoreDamaged, lambda: patient.get("large"))


def _refused(kind: type[SnapshotsError], act: Callable[[], object]) -> SnapshotsError:
    with pytest.raises(kind) as raised:
        act()
    assert type(raised.value) is kind
    assert raised.value.where
    assert raised.value.way_out
    return raised.value

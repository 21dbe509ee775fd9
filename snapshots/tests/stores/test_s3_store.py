"""The store in S3, against a real server: the contract, and what S3 alone has."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from hanging import HANGS_S
from s3_server import S3Server
from store_contract import SMALL, OpenStore, StoreContract, took_s

from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_snapshots.stores.errors import AlreadyThere, NotThere, StoreRefused, StoreUnavailable

pytest.importorskip("boto3", reason="boto3 is an extra")
pytestmark = pytest.mark.s3

LARGE = bytes(range(251)) * 80_000


@pytest.fixture(name="open_s3", scope="module")
def _open_s3(s3: S3Server) -> OpenStore:
    bucket = s3.make_bucket()

    def opened(prefix: str = "/some/prefix", **settings: object) -> Store:
        asked = {"endpoint": s3.endpoint, "limit_s": 10.0} | settings
        return open_store(StoreSetting(f"s3://{bucket}{prefix}", **asked))  # type: ignore[arg-type]

    return opened


# boto3 takes its time to make a client.
@pytest.fixture(name="opened", scope="module")
def _opened(open_s3: OpenStore) -> Store:
    return open_s3()


@pytest.fixture(scope="module")
def again(open_s3: OpenStore) -> Store:
    return open_s3("/some/prefix/")


@pytest.fixture
def store(opened: Store) -> Store:
    """An empty store."""
    opened.delete([entry.name for entry in opened.names("")])
    return opened


class TestS3Store(StoreContract):
    """The contract."""


def test_what_is_large_goes_in_several_requests_and_comes_back_whole(store: Store, again: Store) -> None:
    store.put("large", LARGE)
    again.put("large", LARGE)
    with pytest.raises(AlreadyThere):
        store.put("large", LARGE[:-1] + b"!")
    assert again.get("large") == LARGE
    assert [(entry.name, entry.bytes) for entry in store.names("")] == [("large", len(LARGE))]


def test_an_upload_that_loses_the_race_puts_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide_snapshots.stores.s3_upload import Upload

    complete = Upload._complete

    def late(upload: Upload, *arguments: object) -> bool | None:
        monkeypatch.setattr(Upload, "_complete", complete)
        store.put("large", SMALL)
        return complete(upload, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Upload, "_complete", late)
    with pytest.raises(AlreadyThere):
        store.put("large", LARGE)
    assert store.get("large") == SMALL


def test_names_come_from_all_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client = store._client  # type: ignore[attr-defined]
    pages = []
    list_objects = client.list_objects_v2

    def small_pages(**asked: object) -> object:
        pages.append(asked)
        return list_objects(MaxKeys=3, **asked)

    monkeypatch.setattr(client, "list_objects_v2", small_pages)
    names = [f"a/{number:02d}" for number in range(10)]
    for name in names:
        store.put(name, SMALL)
    assert [entry.name for entry in store.names("a/")] == names
    assert len(pages) == 4


def test_more_than_one_request_can_hold_is_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide_snapshots.stores.s3.NAMES_AT_ONCE", 3)
    names = [f"a/{number:02d}" for number in range(10)]
    for name in names:
        store.put(name, SMALL)
    store.delete(names[:9])
    assert [entry.name for entry in store.names("")] == names[9:]


def test_roots_do_not_see_each_other(s3: S3Server, bucket: str) -> None:
    roots = ("", "/a", "/a/b", "/ab")
    stores = {root: open_store(StoreSetting(f"s3://{bucket}{root}", endpoint=s3.endpoint)) for root in roots}
    stores["/a"].put("x", SMALL)
    assert {prefix: [entry.name for entry in store.names("")] for prefix, store in stores.items()} == {
        "": ["a/x"],
        "/a": ["x"],
        "/a/b": [],
        "/ab": [],
    }


@pytest.mark.parametrize("url", ["s3:", "s3://", "s3:///prefix", "s3:bucket", "s3://bucket/a?b"])
def test_a_url_that_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="has no bucket"):
        open_store(StoreSetting(url))


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(StoreRefused, match="must not contain credentials") as raised:
        open_store(StoreSetting("s3://key:secret@bucket/prefix"))
    assert "secret" not in str(raised.value)


def test_a_wrong_password_is_said(s3: S3Server, open_s3: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    if not s3.real:
        pytest.skip("moto checks no credentials")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreRefused, match="correct the credentials"):
        open_s3().check()


def test_credentials_that_are_missing_are_said(open_s3: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreRefused, match="no credentials"):
        open_s3().check()
    with pytest.raises(StoreRefused, match="nobody"):
        open_s3(profile="nobody")


def test_a_bucket_that_is_not_there_is_distinguished_from_an_object(s3: S3Server, store: Store) -> None:
    with pytest.raises(NotThere):
        store.get("a")
    missing = open_store(StoreSetting("s3://no-such-bucket/prefix", endpoint=s3.endpoint, limit_s=5.0))
    for act in (missing.check, lambda: missing.get("a"), lambda: missing.names("")):
        with pytest.raises(StoreRefused, match="create the bucket"):
            act()


def test_nobody_who_answers_is_said_in_time(open_s3: OpenStore) -> None:
    with socket.socket() as silent:
        # Takes connections and says nothing.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = open_s3(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", limit_s=1.5)
        assert took_s(lambda: _is_away(store)) < HANGS_S
    assert took_s(lambda: _is_away(store)) < HANGS_S


def test_a_server_that_comes_back_in_time_is_waited_for(tmp_path: Path, s3: S3Server) -> None:
    if not s3.real:
        pytest.skip("moto forgets all when it ends")
    with S3Server(tmp_path / "another") as server:
        store = open_store(StoreSetting(f"s3://{server.make_bucket()}", endpoint=server.endpoint, limit_s=HANGS_S))
        store.put("a", SMALL)
        server.stop()
        back = threading.Timer(1.0, server.start)
        back.start()
        assert store.get("a") == SMALL
        back.join()


def _is_away(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="try again"):
        store.get("a")


def test_a_sweep_ends_old_uploads_below_a_prefix(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3.make_bucket()
    swept = open_store(StoreSetting(f"s3://{bucket}/root", endpoint=s3.endpoint))
    client = swept._client  # type: ignore[attr-defined]
    for key in ("root/a/1", "root/b/1"):
        client.create_multipart_upload(Bucket=bucket, Key=key)

    def open_uploads() -> list[str]:
        return [each["Key"] for each in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    swept.sweep("a/")
    assert open_uploads() == ["root/a/1", "root/b/1"]
    monkeypatch.setattr("lowtide_snapshots.stores.s3.UNFINISHED_LIMIT_S", -60.0)
    swept.sweep("a/")
    assert open_uploads() == ["root/b/1"]
    swept.close()

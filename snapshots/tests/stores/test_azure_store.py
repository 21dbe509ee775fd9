"""The store in Azure, against a real server: the contract, forks of a process that uses it, and what Azure has."""

from __future__ import annotations

import base64
import ipaddress
import json
import logging
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from azurite import ACCOUNT, KEY, Azurite
from hanging import HANGS_S
from store_contract import SMALL, OpenStore, StoreContract, took_s

from lowtide_snapshots import SnapshotsError
from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_snapshots.stores.errors import AlreadyThere, NotThere, StoreRefused, StoreUnavailable

pytest.importorskip("azure.storage.blob", reason="azure-storage-blob is an extra")
pytestmark = pytest.mark.azure

LARGE = bytes(range(251)) * 80_000
FORKS = 12


@pytest.fixture(name="open_azure", scope="module")
def _open_azure(azurite: Azurite) -> OpenStore:
    container = azurite.make_container()

    def opened(prefix: str = "/some/prefix", **settings: object) -> Store:
        asked = {"endpoint": azurite.endpoint, "account": ACCOUNT, "limit_s": 10.0} | settings
        return open_store(StoreSetting(f"az://{container}{prefix}", **asked))  # type: ignore[arg-type]

    return opened


@pytest.fixture(name="opened", scope="module")
def _opened(open_azure: OpenStore) -> Store:
    return open_azure()


@pytest.fixture(scope="module")
def again(open_azure: OpenStore) -> Store:
    return open_azure("/some/prefix/")


@pytest.fixture
def store(opened: Store) -> Store:
    """An empty store."""
    opened.delete([entry.name for entry in opened.names("")])
    return opened


class TestAzureStore(StoreContract):
    """The contract."""


def test_what_is_large_goes_in_several_requests_and_comes_back_whole(store: Store, again: Store) -> None:
    store.put("large", LARGE)
    again.put("large", LARGE)
    with pytest.raises(AlreadyThere):
        store.put("large", LARGE[:-1] + b"!")
    assert again.get("large") == LARGE
    assert [(entry.name, entry.bytes) for entry in store.names("")] == [("large", len(LARGE))]


def test_an_upload_that_loses_the_race_puts_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide_snapshots.stores.azure_upload import Upload

    commit = Upload._commit

    def late(upload: Upload, *arguments: object) -> bool | None:
        monkeypatch.setattr(Upload, "_commit", commit)
        store.put("large", SMALL)
        return commit(upload, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Upload, "_commit", late)
    with pytest.raises(AlreadyThere):
        store.put("large", LARGE)
    assert store.get("large") == SMALL


def test_an_upload_whose_blocks_were_dropped_restarts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide_snapshots.stores.azure_upload import Upload

    commit = Upload._commit

    def late(upload: Upload, *arguments: object) -> bool | None:
        monkeypatch.setattr(Upload, "_commit", commit)
        store.put("large", SMALL)
        store.delete(["large"])
        return commit(upload, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Upload, "_commit", late)
    store.put("large", LARGE)
    assert store.get("large") == LARGE


def test_what_another_tool_has_put_is_compared_and_got(azurite: Azurite) -> None:
    """It says nothing of a SHA-256, and the server knows no sum of what came in blocks."""
    with azurite.container(max_single_put_size=4, max_block_size=8) as container:
        container.upload_blob("root/a", SMALL)
        place = f"az://{container.container_name}/root"
        store = open_store(StoreSetting(place, endpoint=azurite.endpoint, account=ACCOUNT))
        store.put("a", SMALL)
        with pytest.raises(AlreadyThere):
            store.put("a", SMALL[::-1])
        assert store.get("a") == SMALL


def test_blocks_that_were_never_committed_and_folders_are_no_objects(azurite: Azurite) -> None:
    with azurite.container() as container:
        container.get_blob_client("root/left").stage_block("1" * 38, SMALL)
        container.upload_blob("root/folder", b"", metadata={"hdi_isfolder": "true"})
        place = f"az://{container.container_name}/root"
        store = open_store(StoreSetting(place, endpoint=azurite.endpoint, account=ACCOUNT))
        assert store.names("") == []
        store.put("left", SMALL)
        store.sweep("")
        assert [entry.name for entry in store.names("")] == ["left"]


def test_names_come_from_all_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.storage.blob import ContainerClient

    pages = []
    list_blobs = ContainerClient.list_blobs

    def small_pages(client: ContainerClient, **asked: Any) -> object:
        pages.append(asked)
        return list_blobs(client, results_per_page=3, **asked)

    monkeypatch.setattr(ContainerClient, "list_blobs", small_pages)
    names = [f"a/{number:02d}" for number in range(10)]
    for name in names:
        store.put(name, SMALL)
    assert [entry.name for entry in store.names("a/")] == names
    assert len(pages) == 4


def test_more_than_go_at_once_are_deleted(store: Store) -> None:
    names = [f"a/{number:02d}" for number in range(20)]
    for name in names:
        store.put(name, SMALL)
    store.delete(names[:19])
    assert [entry.name for entry in store.names("")] == names[19:]


def test_roots_do_not_see_each_other(azurite: Azurite) -> None:
    container = azurite.make_container()
    roots = ("", "/a", "/a/b", "/ab")
    stores = {
        root: open_store(StoreSetting(f"az://{container}{root}", endpoint=azurite.endpoint, account=ACCOUNT))
        for root in roots
    }
    stores["/a"].put("x", SMALL)
    assert {prefix: [entry.name for entry in store.names("")] for prefix, store in stores.items()} == {
        "": ["a/x"],
        "/a": ["x"],
        "/a/b": [],
        "/ab": [],
    }


# -- forks: a snapshot is written by one of a host that goes on -----------------------------------------------------


@pytest.fixture
def busy(open_azure: OpenStore) -> Iterator[Store]:
    """A store that four threads of this process use until the test ends, each seeing what it put."""
    store, ended = open_azure("/busy"), threading.Event()
    failed: list[BaseException] = []

    def work(number: int) -> None:
        turn = 0
        while not ended.is_set():
            name, data = f"{number}/{os.getpid()}-{turn}", bytes([number, turn % 256]) * 3_000
            try:
                store.put(name, data)
                assert store.get(name) == data
            except (SnapshotsError, AssertionError) as error:
                failed.append(error)
                return
            turn += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield store
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_a_fork_of_a_process_that_uses_the_store_opens_its_own(busy: Store, open_azure: OpenStore) -> None:
    """As the process does that writes a snapshot."""

    def child() -> None:
        _puts_and_gets(open_azure("/forked"))

    for _ in range(FORKS):
        _forked(child)


def test_a_fork_of_a_process_that_uses_the_store_may_use_it_too(busy: Store) -> None:
    for _ in range(FORKS):
        _forked(lambda: _puts_and_gets(busy))


def test_a_fork_of_a_fork_may_use_it_too(store: Store) -> None:
    store.put("before", SMALL)

    def child() -> None:
        assert store.get("before") == SMALL
        _forked(lambda: _puts_and_gets(store))
        _puts_and_gets(store)

    _forked(child)
    assert len(store.names("forked/")) == 4


def _puts_and_gets(store: Store) -> None:
    small, large = f"forked/{os.getpid()}/small", f"forked/{os.getpid()}/large"
    store.put(small, SMALL)
    store.put(large, LARGE[:9_000_000])
    assert store.get(small) == SMALL
    assert store.get(large) == LARGE[:9_000_000]
    assert {small, large} <= {entry.name for entry in store.names("forked/")}


def _forked(act: Callable[[], None]) -> None:
    """Do something in a fork of this process, and see that it ends well."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + HANGS_S
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the fork hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


# -- what is set, and what stays secret -----------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["az:", "az://", "az:///prefix", "az:container", "az://container/a?b"])
def test_a_url_that_names_no_container_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="is not az://container/prefix"):
        open_store(StoreSetting(url))


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("az://key:secret@container/prefix", None),
        ("az://container/prefix?sig=secret", None),
        ("az://container/prefix", "https://one.blob.core.windows.net?sig=secret"),
        ("az://container/prefix", "https://key:secret@one.blob.core.windows.net"),
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str, endpoint: str | None) -> None:
    with pytest.raises(StoreRefused) as raised:
        open_store(StoreSetting(url, endpoint=endpoint))
    assert "secret" not in str(raised.value)


def test_an_account_is_named_by_the_setting_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = StoreSetting("az://container")
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    with pytest.raises(StoreRefused, match="no storage account is named"):
        open_store(setting)
    assert _url_of(open_store(StoreSetting("az://container", account="one"))) == (
        "https://one.blob.core.windows.net/container"
    )
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "two")
    assert _url_of(open_store(setting)) == "https://two.blob.core.windows.net/container"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=three;AccountKey={KEY};EndpointSuffix=cloud.de")
    assert _url_of(open_store(setting)) == "https://three.blob.cloud.de/container"
    with pytest.raises(StoreRefused, match="names three"):
        open_store(StoreSetting("az://container", account="one"))


def _url_of(store: Store) -> str:
    return str(store._client().url)  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["connection string", "SAS token", "SAS in a connection string"])
def test_the_environment_names_credentials(
    azurite: Azurite, open_azure: OpenStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    soon = datetime.now(UTC) + timedelta(hours=1)
    rights = AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True)
    token = generate_account_sas(ACCOUNT, KEY, ResourceTypes(container=True, object=True, service=True), rights, soon)
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    if way == "SAS token":
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", token)
    else:
        secret = f"SharedAccessSignature={token}" if way.startswith("SAS") else f"AccountKey={KEY}"
        text = f"AccountName={ACCOUNT};{secret};BlobEndpoint={azurite.endpoint};"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    store = open_azure(f"/{way[:3]}", endpoint=None if "string" in way else azurite.endpoint, account=None)
    store.check()
    store.put("large", LARGE)
    assert store.get("large") == LARGE
    store.delete(["large"])


def test_no_secret_is_in_errors_logs_or_pickles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, open_azure: OpenStore
) -> None:
    """A SAS token is part of each request's URL, which libraries like to repeat."""
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2020&sig=very-secret")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = open_azure(endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}/{ACCOUNT}", limit_s=0.3)
        caplog.set_level(logging.INFO)
        with pytest.raises(StoreUnavailable) as raised:
            away.get("a")
    with pytest.raises(StoreRefused) as refused:
        open_azure().get("a")
    for error in (raised.value, refused.value):
        seen: BaseException | None = error
        while seen is not None:
            assert "secret" not in f"{seen!r} {seen}"
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    assert "secret" not in caplog.text
    assert "azure" not in caplog.text
    assert b"secret" not in pickle.dumps(StoreSetting("az://container", account="one"))


def test_a_wrong_key_is_said(azurite: Azurite, open_azure: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "d3Jvbmc=")
    with pytest.raises(StoreRefused, match="correct the key"):
        open_azure().check()
    monkeypatch.setenv("AZURE_STORAGE_KEY", "not base64")
    with pytest.raises(StoreRefused, match="AZURE_STORAGE_KEY"):
        open_azure().check()


def test_an_identity_goes_over_https_only(open_azure: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    with pytest.raises(StoreRefused, match="HTTPS"):
        open_azure()


class _Identity(BaseHTTPRequestHandler):
    """Gives out a machine's tokens, as Azure does in an App Service; Azurite believes what is not signed."""

    def do_GET(self) -> None:
        now = int(time.time())
        claims: dict[str, Any] = {"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/one/"}
        claims |= {"nbf": now - 60, "iat": now - 60, "exp": now + 3600}
        parts = (json.dumps({"alg": "RS256", "typ": "JWT"}), json.dumps(claims), "no signature")
        token = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        answer = {"access_token": token, "expires_on": str(now + 3600), "resource": "x", "token_type": "Bearer"}
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Says nothing."""


def _certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, datetime.now(UTC), datetime(2100, 1, 1))
    certificate = made.add_extension(here, critical=True).sign(key, hashes.SHA256())
    form, pem = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    folder.joinpath("cert.pem").write_bytes(certificate.public_bytes(pem))
    folder.joinpath("key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


def test_a_machine_has_an_identity_and_a_fork_of_a_process_too(
    tmp_path: Path, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("azure.identity", reason="azure-identity is an extra")
    certificate = _certificate(tmp_path)
    with (
        Azurite(tmp_path / "tls", kept=False, certificate=certificate) as server,
        ThreadingHTTPServer(("127.0.0.1", 0), _Identity) as identity,
    ):
        threading.Thread(target=identity.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        setting = StoreSetting(f"az://{ACCOUNT}", endpoint=server.endpoint, account=ACCOUNT, limit_s=HANGS_S)
        with pytest.raises(StoreRefused, match="not trusted"):
            open_store(setting).names("")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
        server.container(ACCOUNT).close()
        monkeypatch.delenv("AZURE_STORAGE_KEY")
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{identity.server_address[1]}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "one")
        store = open_store(setting)
        store.check()
        _forked(lambda: _puts_and_gets(store))
        assert len(store.names("")) == 2
        identity.shutdown()


def test_a_container_that_is_not_there_is_distinguished_from_an_object(azurite: Azurite, store: Store) -> None:
    with pytest.raises(NotThere):
        store.get("a")
    setting = StoreSetting("az://no-such-container/prefix", endpoint=azurite.endpoint, account=ACCOUNT, limit_s=5.0)
    missing = open_store(setting)
    for act in (missing.check, lambda: missing.get("a"), lambda: missing.names(""), lambda: missing.put("a", LARGE)):
        with pytest.raises(StoreRefused, match="create the container"):
            act()


def test_nobody_who_answers_is_said_in_time(open_azure: OpenStore) -> None:
    with socket.socket() as silent:
        # Takes connections and says nothing.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = open_azure(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}/{ACCOUNT}", limit_s=1.5)
        assert took_s(lambda: _is_away(store)) < HANGS_S
    assert took_s(lambda: _is_away(store)) < HANGS_S


def test_a_server_that_comes_back_in_time_is_waited_for(tmp_path: Path, azurite: Azurite) -> None:
    with Azurite(tmp_path / "another") as server:
        place = f"az://{server.make_container()}"
        store = open_store(StoreSetting(place, endpoint=server.endpoint, account=ACCOUNT, limit_s=HANGS_S))
        store.put("a", SMALL)
        server.stop()
        back = threading.Timer(1.0, server.start)
        back.start()
        assert store.get("a") == SMALL
        back.join()
        store.close()


def _is_away(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="try again"):
        store.get("a")

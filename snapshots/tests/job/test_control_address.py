"""The address of a control API: what is published of it, and that a token goes to nobody who has not proved it."""

import dataclasses
import socket

import pytest

from lowtide_snapshots.errors import AddressUnproven
from lowtide_snapshots.job.control_address import ControlAddress, ask, fingerprint

TOKEN = "a token of a test"
AT = ControlAddress.proved(
    TOKEN, job='orders "é"', incarnation=7, address="10.1.2.3:9187", certificate=fingerprint(b"a certificate")
)


def test_the_proof_is_what_the_format_says() -> None:
    """By `openssl dgst -sha256 -hmac`, of the text that `snapshots/README.md` gives."""
    assert AT.certificate == "81acd762140fa692a142822d2fbe4dc6f54bcaa501f68ab37e5aeed0bafe4d99"
    assert AT.proof == "86f670f189c2fad4895f227a756909c45ec0f629bd4d76732ceb6255e4657742"


def test_it_survives_a_lifes_node() -> None:
    said = {"incarnation": 7, "phase": "running", **AT.fields()}
    assert set(AT.fields()) == {"control", "control_certificate", "control_proof"}
    assert ControlAddress.of('orders "é"', said) == AT
    AT.check(TOKEN)


@pytest.mark.parametrize(
    "other",
    [
        {"job": "clicks"},
        {"incarnation": 8},
        {"address": "10.1.2.4:9187"},
        {"certificate": fingerprint(b"another")},
        {"proof": ""},
        {"proof": "é"},
        {"proof": AT.proof[:-1] + ("0" if AT.proof[-1] != "0" else "1")},
    ],
)
def test_what_whoever_wrote_it_has_not_proved_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(AddressUnproven, match="the token was not sent"):
        dataclasses.replace(AT, **other).check(TOKEN)  # type: ignore[arg-type]


def test_with_another_token_the_error_says_where_the_right_one_is() -> None:
    with pytest.raises(AddressUnproven) as refused:
        AT.check("another token")
    assert "10.1.2.3:9187" in refused.value.what
    assert "[control].token_file" in refused.value.way_out
    assert "another token" not in str(refused.value)


def test_a_life_that_publishes_no_proof_is_not_asked() -> None:
    """As one of an older version, which would hear the token in the clear."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        host, port = listener.getsockname()
        at = ControlAddress.of("orders", {"incarnation": 7, "control": f"{host}:{port}"})
        with pytest.raises(AddressUnproven):
            ask(at, TOKEN, "GET", "/status", limit_s=1.0)
        with pytest.raises(TimeoutError):
            listener.accept()

"""`lowtide status NAME --open`: shows a running job's page in a browser, which is given the job's token.

The token must not stand on a command line, which every user of a machine can read. So the browser is sent to a file in
the job's folder, for its owner alone, and from there to the page, which takes the token out of its address.
"""

from __future__ import annotations

import webbrowser
from html import escape

import click
from cryptography import x509

from lowtide.errors import LowtideError, NotRunning
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState
from lowtide_snapshots.errors import TokenRefused

REDIRECTION = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={page}">
<title>Lowtide</title>
<p><a href="{page}">The page of the job</a></p>
"""


class NoBrowser(LowtideError):
    """Open the page yourself: no browser can be started here."""

    exit_code = 4


def page_address(control: str) -> str:
    """Return the address of the page that a control API serves."""
    return f"https://{control}/"


def open_page(folder: JobFolder, state: JobState) -> None:
    """Open the page of a job of this machine.

    Raises:
        NotRunning: the job does not run, or is still starting.
        TokenRefused: it is another user's.
        NoBrowser: none can be started here.
    """
    control, token = state.control_address(), folder.token()
    if state.ended or control is None or not control.address:
        what = "has ended" if state.ended else "is still starting"
        raise NotRunning(
            f'job "{folder.name}" {what}, and a job serves its page itself',
            where=str(folder.path),
            way_out=f"`lowtide status {folder.name}` shows why it ended" if state.ended else "wait until it runs",
        )
    if token is None:
        raise TokenRefused(
            f'the token of job "{folder.name}" cannot be read',
            where=str(folder.token_file),
            way_out="ask as the user who runs the job",
        )
    page = page_address(control.address)
    file = folder.keep_page(REDIRECTION.format(page=escape(f"{page}#token={token}")))
    click.echo(f"{page}{_certificate(folder, control.certificate)}")
    if not webbrowser.open(file.as_uri()):
        raise NoBrowser(
            "no browser can be started here",
            where=page,
            way_out=f"open it yourself; the page asks for the token, which is in {folder.token_file}. From another "
            f"machine, forward the port first: ssh -L {_forwarded(control.address)} THIS-MACHINE",
        )


def _certificate(folder: JobFolder, fingerprint: str) -> str:
    """Return the fingerprint to compare with the browser's warning; empty for a certificate that the conf names."""
    certificate = x509.load_pem_x509_certificate(folder.certificate_file.read_bytes())
    if certificate.issuer != certificate.subject:
        return ""
    pairs = ":".join(fingerprint[at : at + 2] for at in range(0, len(fingerprint), 2)).upper()
    return (
        f"\nThe job made its own certificate, so the browser warns about it once. Its SHA-256 fingerprint is\n{pairs}"
    )


def _forwarded(address: str) -> str:
    port = address.rpartition(":")[2]
    return f"{port}:{address}"

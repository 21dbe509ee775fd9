"""The token of a job's control API."""

from __future__ import annotations

import secrets
from pathlib import Path

from lowtide.conf.tables import ControlConf
from lowtide.errors import ConfError

TOKEN_BYTES = 32
MIN_CHARS = 16


def job_token(control: ControlConf) -> str:
    """Return the token that the conf's file holds, or a new one.

    Raises:
        ConfError: the file cannot be read, or what it holds cannot be a token.
    """
    if control.token_file is None:
        return secrets.token_urlsafe(TOKEN_BYTES)
    where = f"{control.token_file} ([control].token_file)"
    try:
        token = Path(control.token_file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfError(
            f"the control API's token cannot be read: {error}",
            where=where,
            way_out="correct the path, or leave it out: each life then makes a token of its own",
        ) from error
    if len(token) < MIN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfError(
            f"the control API's token must be one line of at least {MIN_CHARS} plain characters",
            where=where,
            way_out=f"put one there: openssl rand -hex {TOKEN_BYTES}",
        )
    return token

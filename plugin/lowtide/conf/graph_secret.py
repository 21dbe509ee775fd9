"""The secret of a graph of jobs."""

from __future__ import annotations

from lowtide.conf.secret import read_secret
from lowtide.conf.tables import TrackerConf
from lowtide.errors import ConfError
from lowtide_tracker.handshake import SECRET_BYTES_MIN


def graph_secret(tracker: TrackerConf) -> str:
    """Return the secret that all jobs of the graph have (errors: ConfError)."""
    secret = read_secret("tracker", "secret", tracker.secret_env, tracker.secret_file)
    where = "[tracker] of the conf"
    if secret is None:
        raise ConfError(
            "graph is set, and no secret",
            where=where,
            way_out="name a file with one in secret_file, the same for all jobs of the graph: openssl rand -hex 32",
        )
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise ConfError(
            f"the graph's secret has {len(secret.encode())} bytes, and needs {SECRET_BYTES_MIN}",
            where=where,
            way_out="make a longer one: openssl rand -hex 32",
        )
    return secret

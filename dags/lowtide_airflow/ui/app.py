"""The page's web application: its files and two requests, for users who are signed in to Airflow.

Every user who may see Airflow's plugins may see it, as these find it in the navigation. It only reads.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Response

from lowtide_airflow.ui.answers import JobAnswer
from lowtide_airflow.ui.board import Board

__all__ = ["page_app"]

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_FILE = re.compile(r"[a-z]+\.(css|js)")
Name = Annotated[str, Query(min_length=1, max_length=250)]


def page_app(board: Board) -> FastAPI:
    """Build the application.

    Args:
        board: answers its requests.
    """
    app = FastAPI(
        title="Lowtide",
        openapi_url=None,
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
    )

    @app.get("/")
    def page() -> Response:
        return _file("page.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if not _FILE.fullmatch(name) or not (STATIC / name).is_file():
            raise HTTPException(404, f"there is no {name[:100]}")
        return _file(name)

    @app.get("/api/jobs")
    def jobs() -> Response:
        return _json(board.jobs())

    @app.get("/api/job")
    def job(job: Name, connection: Name, since_ms: Annotated[int, Query(ge=0)] = 0) -> Response:
        try:
            answer = board.job(connection, job)
        except LookupError:
            raise HTTPException(404, f"connection {connection!r} is not one of the page's") from None
        return _json(_after(answer, since_ms))

    return app


def _after(answer: JobAnswer, since_ms: int) -> JobAnswer:
    """An answer without the part of the history that the page has already."""
    history = answer.history
    if history is None or not since_ms:
        return answer
    holders = history["holders"]
    new = {name: [each for each in history[name] if each[0] > since_ms] for name in ("fine", "coarse")}
    return replace(answer, history={**history, **new, "holders": holders})


def _file(name: str) -> Response:
    path = STATIC / name
    return Response(path.read_bytes(), media_type=f"{TYPES[path.suffix]}; charset=utf-8", headers=HEADERS)


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=HEADERS)

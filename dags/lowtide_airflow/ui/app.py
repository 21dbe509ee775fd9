"""The page's web application: its files and two requests, for users who are signed in to Airflow.

Every user who may see Airflow's plugins may see it, as these find it in the navigation. It only reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import msgspec
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Response

from lowtide_airflow.ui.board import Board
from lowtide_snapshots.page.answers import JobAnswer
from lowtide_snapshots.page.files import page_file, page_headers

HEADERS = page_headers(framed_by="'self'")
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
        return _file()

    @app.get("/static/{name}")
    def static(name: str) -> Response:
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


def _file(name: str = "") -> Response:
    file = page_file(name)
    if file is None:
        raise HTTPException(404, f"there is no {name[:100]}")
    return Response(file.body, media_type=file.content_type, headers=HEADERS)


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=HEADERS)

"""The page's files, and the headers that all of the page goes out with.

file = page_file("page.css")
answer(file.body, file.content_type, page_headers())
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_LINKED = re.compile(r"[a-z]+\.(css|js|svg)")


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page."""

    body: bytes
    content_type: str


def page_file(name: str = "") -> PageFile | None:
    """Return the file that the page has under `static/NAME`, or the page itself; None if it has no such file."""
    return _read(name or "page.html") if not name or _LINKED.fullmatch(name) else None


@cache
def _read(name: str) -> PageFile | None:
    path = FOLDER / name
    return PageFile(path.read_bytes(), f"{TYPES[path.suffix]}; charset=utf-8") if path.is_file() else None


def page_headers(framed_by: str = "'none'") -> dict[str, str]:
    """Return the headers of the page, its files and its answers: nothing is loaded from anywhere else, nor kept.

    Args:
        framed_by: What may show it in a frame, as a source of a content security policy.
    """
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors {framed_by}"
    )
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }

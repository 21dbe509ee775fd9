"""Helpers for tests: of flows that run as jobs, and of stores that jobs write."""

from __future__ import annotations

from lowtide.calls.stub import Stub
from lowtide.testing.aborting import abort_once

__all__ = ["Stub", "abort_once"]

"""A process may have as many descriptors as the system lets it, and no fewer than before."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from lowtide.process.descriptors import allow_descriptors


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_it_is_raised_as_far_as_it_goes(limits: tuple[int, int]) -> None:
    low = 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, limits[1]))
    assert allow_descriptors(low + 100) == low + 100
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low + 100, limits[1])
    most = allow_descriptors()
    assert most > low + 100
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, limits[1])
    assert most <= limits[1] or limits[1] == resource.RLIM_INFINITY


def test_it_is_never_lowered(limits: tuple[int, int]) -> None:
    assert allow_descriptors(10) == limits[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits

"""The fixtures of tests that need Azurite; without it they are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from azurite import Azurite


@pytest.fixture(name="azurite_server", scope="session")
def _azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    from azurite import Azurite, AzuriteMissing

    pytest.importorskip("azure.storage.blob", reason="azure-storage-blob is an extra")
    try:
        with Azurite(tmp_path_factory.mktemp("azurite") / "server", kept=False) as server:
            yield server
    except AzuriteMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def azurite(azurite_server: Azurite) -> Iterator[Azurite]:
    """A real server, and its account's key in the environment."""
    from azurite import ENVIRONMENT

    with pytest.MonkeyPatch.context() as environment:
        for name in list(os.environ):
            if name.startswith("AZURE_"):
                environment.delenv(name)
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
        yield azurite_server

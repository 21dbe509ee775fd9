import importlib.util
from pathlib import Path

import pytest

from lowtide.cache import cache_folder

ENVIRONMENT = Path(__file__).parents[2] / "tools" / "environment.py"


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"LOWTIDE_CACHE": "/one", "XDG_CACHE_HOME": "/two"}, "/one"),
        ({"LOWTIDE_CACHE": "", "XDG_CACHE_HOME": "/two"}, "/two/lowtide"),
        ({"LOWTIDE_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/me/.cache/lowtide"),
        ({"LOWTIDE_CACHE": "~/here"}, "/home/me/here"),
    ],
)
def test_make_and_lowtide_agree_on_the_folder(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)
    spec = importlib.util.spec_from_file_location("environment", ENVIRONMENT)
    assert spec is not None
    assert spec.loader is not None
    environment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environment)
    assert environment.cache_folder() == Path(folder)

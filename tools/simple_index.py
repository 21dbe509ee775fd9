"""Package index of a folder of wheels and sdists: static files, from which any web server serves `pip install`.

    python3 tools/simple_index.py dist
    python3 -m http.server --directory dist
    pip install --index-url http://localhost:8000/simple/ ...

`simple/` gets a page and a JSON file for each project (PEP 503, PEP 691), with hashes; each wheel's metadata is
beside it (PEP 658), so that pip resolves before it downloads. Needs only the standard library.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tarfile
import zipfile
from collections import defaultdict
from email.parser import BytesParser
from html import escape
from pathlib import Path

PAGE = """\
<!DOCTYPE html>
<html>
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.1"><title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def metadata_of(path: Path) -> bytes:
    """Return a wheel's METADATA or an sdist's PKG-INFO."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            (name,) = (each for each in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
            return wheel.read(name)
    with tarfile.open(path) as sdist:
        held = sdist.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert held
        return held.read()


def sha256(content: bytes) -> dict[str, str]:
    return {"sha256": hashlib.sha256(content).hexdigest()}


def link(text: str, url: str, **attributes: str) -> str:
    given = {"href": url} | {name.replace("_", "-"): value for name, value in attributes.items() if value}
    return "<a {}>{}</a><br>".format(" ".join(f'{name}="{escape(value)}"' for name, value in given.items()), text)


def write(folder: Path, title: str, links: list[str], answer: dict[str, object]) -> None:
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(PAGE.format(title=title, links="\n".join(links)))
    (folder / "index.json").write_text(json.dumps({"meta": {"api-version": "1.1"}} | answer, indent=1) + "\n")


def write_project(dist: Path, name: str, paths: list[tuple[str, Path]]) -> None:
    """Write a project's page, its JSON and its wheels' metadata."""
    links, files = [], []
    for _, path in paths:
        content, metadata = path.read_bytes(), metadata_of(path)
        needs = str(BytesParser().parsebytes(metadata, headersonly=True)["Requires-Python"] or "")
        file = {"filename": path.name, "url": f"../../{path.name}", "hashes": sha256(content), "size": len(content)}
        file |= {"requires-python": needs} if needs else {}
        of_metadata = ""
        if path.suffix == ".whl":
            path.with_name(f"{path.name}.metadata").write_bytes(metadata)
            # Again under the name that pip knew first (PEP 714).
            file |= {"core-metadata": sha256(metadata), "dist-info-metadata": sha256(metadata)}
            of_metadata = "sha256={sha256}".format(**sha256(metadata))
        url = "{}#sha256={sha256}".format(file["url"], **sha256(content))
        known = {"data_core_metadata": of_metadata, "data_dist_info_metadata": of_metadata}
        links.append(link(path.name, url, data_requires_python=needs, **known))
        files.append(file)
    versions = sorted({version for version, _ in paths})
    write(dist / "simple" / name, name, links, {"name": name, "versions": versions, "files": files})


def write_index(dist: Path) -> None:
    """Write the index of all wheels and sdists of a folder from scratch."""
    shutil.rmtree(dist / "simple", ignore_errors=True)
    projects: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for path in sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")]):
        name, version = path.name.removesuffix(".tar.gz").split("-")[:2]
        projects[re.sub(r"[-_.]+", "-", name).lower()].append((version, path))
    named: list[object] = [{"name": name} for name in projects]
    write(dist / "simple", "Simple index", [link(name, f"{name}/") for name in projects], {"projects": named})
    for name, paths in projects.items():
        write_project(dist, name, paths)


if __name__ == "__main__":
    write_index(Path(sys.argv[1]))

"""The skeleton's Java class: compiled on demand into the cache; not part of Lowtide's own jar."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.jars.build import RELEASE, make_jar

SOURCE = Path(__file__).with_name("Stage.java")


def skeleton_jar() -> Path:
    """Return the jar; compile it if the cache has none of this source for this pyspark.

    Raises:
        JavaMissing: it has to be compiled, and there is no JDK.
        ShimRefused: the compiler found errors.
    """
    made_of = b"%d %s\n" % (RELEASE, version("pyspark").encode()) + SOURCE.read_bytes()
    jar = cache_folder() / "bench" / f"skeleton-{hashlib.sha256(made_of).hexdigest()[:12]}.jar"
    if not jar.is_file():
        make_jar([SOURCE], jar, "Manifest-Version: 1.0\n")
    return jar

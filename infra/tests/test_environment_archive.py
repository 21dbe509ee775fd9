"""An environment runs elsewhere: its scripts find their Python, and the hosts have its C library."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from environment_archive import newest_glibc, outside_glibc, relocate, write


@pytest.mark.parametrize(
    "first", ["#!/somewhere/else/bin/python3.11\n", "#!/bin/sh\n'''exec' /else/bin/python \"$0\" \"$@\"\n' '''\n"]
)
def test_a_script_is_run_by_the_python_beside_it(tmp_path: Path, first: str) -> None:
    (tmp_path / "bin with blanks").mkdir()
    script = tmp_path / "bin with blanks/told"
    script.write_text(f"{first}import sys\nprint(sys.executable, sys.argv[1:])\n")
    script.chmod(0o755)
    (script.parent / "python").symlink_to(sys.executable)
    relocate(script)
    done = subprocess.run([script, "a b"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]})
    assert done.stdout.strip() == f"{script.parent / 'python'} ['a b']"


def test_other_scripts_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/bin/bash\necho\n")
    relocate(tmp_path / "plain")
    assert (tmp_path / "plain").read_text() == "#!/bin/bash\necho\n"


def test_the_newest_glibc_is_the_newest_that_any_library_asks_for(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"\x7fELF..\0GLIBC_2.9\0GLIBC_2.28\0")
    (tmp_path / "b.so.1").write_bytes(b"\x7fELF..\0GLIBC_2.2.5\0GLIBC_2.33\0")
    (tmp_path / "text.so").write_bytes(b"\0GLIBC_2.99\0")
    assert newest_glibc(tmp_path) == "2.33"


def test_libraries_of_glibc_are_not_asked_of_a_host() -> None:
    glibc = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libnss_files.so.2"}
    assert outside_glibc(glibc | {"libssl.so.3", "libcrypt.so.1"}) == {"libssl.so.3", "libcrypt.so.1"}


def test_an_archive_holds_nobodys_files(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made/file").write_text("text")
    write(tmp_path / "made.tar.gz", tmp_path / "made")
    with tarfile.open(tmp_path / "made.tar.gz") as archive:
        assert [(entry.name, entry.uid, entry.mtime) for entry in archive] == [("file", 0, 0)]

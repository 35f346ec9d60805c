"""In place of Debian: a root file system of a few programs, in a moment."""

from __future__ import annotations

import re
import shutil
import subprocess

from harness.trees.cache import Cache, new_layer
from harness.trees.plan import Part

PROGRAMS = ("sh", "cat", "chown", "cp", "id", "ls", "mkdir", "rm", "sleep")


def lowest(cache: Cache) -> None:
    """In place of Debian: the programs that the steps here use, and the libraries that those use."""
    with cache.draft() as draft:
        root = draft / "made" / "root"
        for folder in ("bin", "dev", "proc", "sys", "etc"):
            (root / folder).mkdir(parents=True)
        for name in ("resolv.conf", "hosts"):
            (root / "etc" / name).touch()
        for program in PROGRAMS:
            file = shutil.which(program)
            assert file is not None
            shutil.copy(file, root / "bin" / program)
            listed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
            for library in re.findall(r"(/\S+) \(0x", listed):
                copy = root / library.lstrip("/")
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, copy)
        digest = Part("debian", 1, None).digest
        cache.publish(draft / "made", new_layer(digest, None, root, origin="made", source="a test"))

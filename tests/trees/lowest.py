"""In place of Debian: a root file system of a few programs, in a moment."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache as once

from harness.trees.cache import Cache, new_layer
from harness.trees.plan import Part

PROGRAMS = ("sh", "cat", "chown", "cp", "id", "ls", "mkdir", "rm", "sleep")


@once
def files() -> dict[str, str]:
    """Path in the root -> this machine's file: the programs that the steps here use, and the libraries of these."""
    found = {}
    for program in PROGRAMS:
        file = shutil.which(program)
        assert file is not None
        found[f"bin/{program}"] = file
        listed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        found |= {library.lstrip("/"): library for library in re.findall(r"(/\S+) \(0x", listed)}
    return found


def lowest(cache: Cache) -> None:
    """Put it where Debian's layer would be."""
    with cache.draft() as draft:
        root = draft / "made" / "root"
        for folder in ("dev", "proc", "sys", "etc"):
            (root / folder).mkdir(parents=True)
        for name in ("resolv.conf", "hosts"):
            (root / "etc" / name).touch()
        for target, source in files().items():
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / target)
        digest = Part("debian", 1, None).digest
        cache.publish(draft / "made", new_layer(digest, None, root, origin="made", source="a test"))

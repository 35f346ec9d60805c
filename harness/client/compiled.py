"""Adapters of libraries that are compiled: they come as source, and are built once by whoever has the tools for that.

Each is a folder in workloads/adapters/libraries with a shell script `build`, which is given the folder to build into,
and in that makes a program of the adapter's own name. What was built is kept in this user's folder for caches, named
after a digest of its source: another version of the source is not built yet.

`python -m harness.client.compiled [NAME...]` builds those that aren't, or the named ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import workloads
from harness.errors import FencepostError, UsageError
from harness.private import caches

BUILD = "build"
LIBRARIES = Path(workloads.__file__).parent / "adapters" / "libraries"
HOW = f"{sys.executable} -m harness.client.compiled"
"""What to type for them to be built."""


def sources() -> dict[str, Path]:
    """The folder of each, by the adapter's name."""
    return {path.parent.name: path.parent for path in sorted(LIBRARIES.glob(f"*/{BUILD}"))}


def headline(name: str) -> str:
    """What it says of itself: the rest of the line `# about:` in its script."""
    for line in (sources()[name] / BUILD).read_text().splitlines():
        if line.startswith("# about: "):
            return line.removeprefix("# about: ")
    return "no word on it"


def place(name: str) -> Path:
    """Where the present source of this one is built, or would be."""
    total = hashlib.sha256()
    for path in sorted(sources()[name].iterdir()):
        total.update(f"\0{path.name}\0".encode() + path.read_bytes())
    if (folder := caches("adapters")) is None:
        raise UsageError("this user has no home folder to build adapters in; set XDG_CACHE_HOME")
    return folder / f"{name}-{total.hexdigest()[:12]}"


def built(name: str) -> Path:
    """The folder that it was built into. UsageError says how it is built, where it isn't."""
    where = place(name)
    if not where.is_dir():
        raise UsageError(f"{name} is compiled, and not built yet: `{HOW} {name}` builds it, once ({headline(name)})")
    return where


def build(name: str) -> Path:
    """Build it, in the place of what was built of it before. FencepostError where its script fails, which says why."""
    where = place(name)
    draft = where.with_name(f".{where.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        if subprocess.run(["sh", str(sources()[name] / BUILD), str(draft)], check=False).returncode != 0:
            raise FencepostError(f"{name} can't be built: {headline(name)}")
        if not os.access(draft / name, os.X_OK):
            raise FencepostError(f"{sources()[name] / BUILD} made no program {name}")
        shutil.rmtree(where, ignore_errors=True)
        draft.rename(where)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return where


def main(names: list[str]) -> int:
    """The exit code: 1 where one can't be built, 2 for a name that none has."""
    if unknown := sorted(set(names) - set(sources())):
        print(f"no compiled adapter is called {unknown[0]} (known: {', '.join(sources())})", file=sys.stderr)
        return 2
    code = 0
    for name in names or sources():
        if not names and place(name).is_dir():
            continue
        try:
            print(f"{name}: built in {build(name)}")
        except FencepostError as error:
            print(error, file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

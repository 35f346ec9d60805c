"""The agent's code as it is sent to a node: one piece, and the same bytes wherever and whenever it is made.

A zip of the modules of `nemesis.agent`, in order, with a date of no meaning, and not compressed, so that its hash
depends on nothing but the sources (not on the version of zlib). The agent's hello says the hash of what it was started
from. A small loader goes in front (`nemesis.agent.loader`), which imports from the zip in memory: nothing is written to
the node's disk.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent / "agent"
LOADER = PACKAGE / "loader.py"
BOOTSTRAP = (
    "import sys\n"
    "stream = sys.stdin.buffer\n"
    "loader, parcel = [stream.read(int(length)) for length in stream.readline().split()]\n"
    "space = {'__name__': 'loader'}\n"
    "exec(compile(loader, 'agent.zip/nemesis/agent/loader.py', 'exec'), space)\n"
    "space['run'](parcel)\n"
)
"""What is on the command line of the node's python3: it takes what `sent` gives from stdin and runs it."""


def sources() -> dict[str, bytes]:
    """Path in the zip -> source, in order."""
    root = PACKAGE.parent.parent
    files = [PACKAGE.parent / "__init__.py", *PACKAGE.rglob("*.py")]
    return {path: (root / path).read_bytes() for path in sorted(file.relative_to(root).as_posix() for file in files)}


def pack(modules: dict[str, bytes]) -> bytes:
    """A zip that consists of these files, and depends on nothing else."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, source in modules.items():
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # else it tells on which system it was made
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, source)
    return out.getvalue()


@cache
def parcel() -> bytes:
    """The zip."""
    return pack(sources())


@cache
def code() -> str:
    """The sha256 of the zip in hex: `code` in the hello of an agent that was started from it."""
    return hashlib.sha256(parcel()).hexdigest()


def framed(archive: bytes) -> bytes:
    """What `BOOTSTRAP` reads: two lengths on a line, the loader, and a zip."""
    loader = LOADER.read_bytes()
    return b"%d %d\n%s%s" % (len(loader), len(archive), loader, archive)


@cache
def sent() -> bytes:
    """All that is written to an agent's stdin before the first command."""
    return framed(parcel())

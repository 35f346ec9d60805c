"""Packages of Python for clients that users bring: an image for each set of them, upon the contender's.

Such an image has no folder in `docker/`, so what it holds is noted down in this user's folder for caches: whoever lists
or removes images must know it too. It is named after its packages, `client-<digest>`, and so is the note.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.errors import RuntimeUnavailable
from harness.images.table import Config, Step, Table
from harness.private import caches, keep_private

FOLDER = "/opt/fencepost/packages"
"""Where the packages are, on a node."""

FILE = "requirements.txt"

_PREFIX = "client-"
_NAME = re.compile(r"client-[0-9a-f]{12}")

_INSTALL = f"""
PYTHONPATH="$(echo /usr/share/python-wheels/pip-*.whl)" \\
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt \\
    python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --root-user-action=ignore \\
        --no-compile --target {FOLDER} -r {FOLDER}/{FILE}
python3 -m compileall -q --invalidation-mode unchecked-hash {FOLDER} || true
rm -rf /usr/share/python-wheels
"""


def folder() -> Path:
    """Where the notes are: `fencepost/clients` in this user's folder for caches."""
    if (found := caches("clients")) is None:
        raise RuntimeUnavailable("this user has no home folder to keep notes in; set XDG_CACHE_HOME")
    return found


def name_of(packages: Sequence[str]) -> str:
    """The name of the image with these packages."""
    return _PREFIX + hashlib.sha256(_text(packages)).hexdigest()[:12]


def is_one(name: str) -> bool:
    """Whether an image of this name is one with packages."""
    return _NAME.fullmatch(name) is not None


def note(packages: Sequence[str]) -> str:
    """Note an image with these packages down, so that it can be made; returns its name."""
    name = name_of(packages)
    where = folder()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_private(where, "XDG_CACHE_HOME")
        if not (where / name).exists():
            draft = where / f".{name}.{os.getpid()}"
            draft.write_bytes(_text(packages))
            draft.rename(where / name)
    except OSError as error:
        raise RuntimeUnavailable(f"what a client needs can't be noted down in {where}: {error.strerror}") from error
    return name


def drop(name: str) -> None:
    """Forget one that can't be made."""
    (folder() / name).unlink(missing_ok=True)


def noted() -> dict[str, bytes]:
    """The requirements of each image that was noted down, by its name."""
    found = {}
    with suppress(OSError, RuntimeUnavailable):
        for path in sorted(folder().iterdir()):
            if is_one(path.name):
                found[path.name] = path.read_bytes()
    return found


def forget() -> None:
    """Forget all of them: their images and trees are nobody's then."""
    with suppress(OSError, RuntimeUnavailable):
        for name in noted():
            drop(name)


def table(name: str) -> Table:
    """What such an image holds."""
    step = Step(
        note="The packages of a client that a user brings, apart from those of our own clients.",
        files={FILE: f"{FOLDER}/"},
        settings=("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"),
        unpack=("python3-pip-whl",),
        run=_INSTALL,
    )
    about = "A contender with the packages of a client that a user brings."
    return Table(name=name, about=about, on="contender", official="", steps=(step,), config=Config())


def _text(packages: Sequence[str]) -> bytes:
    return "".join(f"{each}\n" for each in packages).encode()

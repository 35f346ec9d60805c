"""What each image is made of: one folder `docker/<name>/` with a Dockerfile, read into a `Recipe`.

Most Dockerfiles are written from a table beside them (`harness.images.table`), which says how to make the same as a
file tree; one that was written by hand serves Docker alone. Two things that the harness must know stand in each:

- `ARG BASE=fencepost/<name>` names the image of ours that it builds on; any other value is an image from outside.
- `# official: REFERENCE` names the published image that serves just as well and is preferred where a registry answers.

A recipe's digest covers everything that decides what its image does: its files with their modes, what is added to them
(the contender's requirements and code), and the digest of the image below. It leaves out what only decides how the
building machine reaches its mirrors (proxies, certificate authorities), so that it is the same everywhere.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import platform
import re
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

import harness
import workloads
from harness.errors import UsageError
from harness.images import brought, table
from harness.images.dockerfile import dockerfile
from harness.images.table import Table

REPOSITORY = "fencepost"
"""Our images are named `fencepost/<name>:<digest>`."""

HIDDEN = frozenset({"base"})
"""Images that only serve to build others: nobody asks for them by name."""

DOCKERFILE = "Dockerfile"

_BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_OFFICIAL = re.compile(r"^# official: (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """How one image is built. `parent` is the recipe below it, None when it stands on Debian's own image.

    `table` is what the Dockerfile was written from, None for one written by hand.
    """

    name: str
    folder: Path
    parent: Recipe | None
    official: str | None
    files: Mapping[str, tuple[bytes, bool]]
    """The build context: path -> (content, executable)."""
    table: Table | None = None

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits over everything that went in."""
        total = hashlib.sha256(self.parent.digest.encode() if self.parent else b"")
        for path, (content, executable) in sorted(self.files.items()):
            total.update(f"\0{path}\0{'x' if executable else '-'}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()[:12]

    @property
    def tag(self) -> str:
        """`fencepost/<name>:<digest>`."""
        return f"{REPOSITORY}/{self.name}:{self.digest}"

    def context(self, extra: Mapping[str, bytes]) -> bytes:
        """The build context as a tar, with more files that the digest doesn't cover."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            added = {path: (content, False) for path, content in extra.items()}
            for path, (content, executable) in sorted({**self.files, **added}.items()):
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(content), 0o755 if executable else 0o644
                archive.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()


def docker_folder() -> Path:
    """Where the Dockerfiles are: `docker/` of a checkout, `harness/_docker` of an installed wheel."""
    installed = Path(harness.__file__).parent / "_docker"
    return installed if installed.is_dir() else Path(harness.__file__).parent.parent / "docker"


def checkout() -> str:
    """Twelve hexadecimal digits for this checkout: the folder that images are built from, whose it is, and the host.

    The host counts because an engine may serve several (a mounted socket, DOCKER_HOST) with the same paths.
    """
    where = f"{platform.node()}\0{os.getuid()}\0{docker_folder().resolve()}"
    return hashlib.sha256(where.encode()).hexdigest()[:12]


def load_all(folder: Path | None = None) -> dict[str, Recipe]:
    """All recipes by name, hidden ones included, each after the one that it builds on.

    Those with packages for clients that users bring only stand beside our own, not beside those of another `folder`.
    """
    usual, folder = folder is None, folder or docker_folder()
    found: dict[str, Recipe] = {}

    def read(name: str) -> Recipe:
        if name not in found:
            below, official = _told(folder / name, said := table.read(folder / name))
            found[name] = Recipe(
                name=name,
                table=said,
                folder=folder / name,
                parent=read(below) if below else None,
                official=official,
                files={**_own_files(folder / name), **(_contender_files(folder) if name == "contender" else {})},
            )
            for variant in said.variants() if said else ():
                found[variant.name] = _of_version(found[name], variant)
        return found[name]

    for found_file in sorted(folder.glob("*/Dockerfile")):
        read(found_file.parent.name)
    if usual and "contender" in found:
        found |= {name: _with_packages(found["contender"], name, listed) for name, listed in brought.noted().items()}
    return found


def _with_packages(below: Recipe, name: str, listed: bytes) -> Recipe:
    """The recipe of an image upon the contender's, with the packages that a client needs which a user brings."""
    said = brought.table(name)
    files = {DOCKERFILE: (dockerfile(said, REPOSITORY).encode(), False), brought.FILE: (listed, False)}
    return Recipe(name, below.folder, below, None, files, said)


def _of_version(usual: Recipe, said: Table) -> Recipe:
    """The recipe of another version: the same files, with the Dockerfile that its table says (it is kept nowhere)."""
    written = dockerfile(said, REPOSITORY).encode()
    return Recipe(said.name, usual.folder, usual.parent, None, {**usual.files, DOCKERFILE: (written, False)}, said)


def versions(name: str) -> list[str]:
    """The versions that an image can be had in, the usual one first; none where nobody said which that is."""
    said = table.read(docker_folder() / name)
    return [said.release, *(each.name for each in said.versions)] if said is not None and said.release else []


def of_version(name: str, version: str) -> str:
    """The name of the image with that version of what is in it. UsageError names those that there are."""
    known = versions(name)
    if version not in known:
        has = f"it has: {', '.join(known)}" if known else "it has but the one that its packages bring"
        raise UsageError(f"{name} has no recipe for version {version!r} ({has})")
    return name if version == known[0] else f"{name}-{version}"


def spelled(name: str) -> str:
    """The name of an image as users may write it: `etcd@3.4.23` is the one with that version."""
    image, at, version = name.partition("@")
    if at and image not in names():
        raise unknown(image)
    return of_version(image, version) if at else name


def every(known: Mapping[str, Recipe]) -> list[str]:
    """Those of `load_all` that can be asked for, those of other versions and with packages for clients too; sorted."""
    return sorted(name for name in known if name not in HIDDEN)


def _told(folder: Path, said: Table | None) -> tuple[str | None, str | None]:
    """The image of ours below, and the published one that serves as well: by the table, else by the Dockerfile."""
    if said is not None:
        return said.below, said.official or None
    text = (folder / "Dockerfile").read_text()
    base, official = _BASE.search(text), _OFFICIAL.search(text)
    ours = base is not None and base[1].startswith(f"{REPOSITORY}/")
    return base[1].removeprefix(f"{REPOSITORY}/") if base and ours else None, official[1] if official else None


def names() -> list[str]:
    """The images that can be asked for, sorted."""
    return sorted(path.parent.name for path in docker_folder().glob("*/Dockerfile") if path.parent.name not in HIDDEN)


def unknown(name: str) -> UsageError:
    """The error for an image that has neither a Dockerfile nor a reference of the user's."""
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UsageError(
        f"unknown image {name!r}{hint} (known: {', '.join(names())}; others with --image {name}=REFERENCE)"
    )


def _tree(folder: Path, prefix: str = "") -> Iterator[tuple[str, tuple[bytes, bool]]]:
    """Files below a folder. Modes are reduced to executable or not: the rest depends on the umask of a checkout."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
            yield prefix + path.relative_to(folder).as_posix(), (path.read_bytes(), bool(path.stat().st_mode & 0o100))


def _own_files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """What stands in its folder, without the table: all that it says is in the Dockerfile."""
    return {path: content for path, content in _tree(folder) if path != table.FILE}


def _contender_files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    requirements = "\n".join(_contender_requirements(folder)) + "\n"
    code = dict(_tree(Path(workloads.__file__).parent, "workloads/"))
    return {"requirements.txt": (requirements.encode(), False), **code}


def _contender_requirements(folder: Path) -> list[str]:
    """The `contender` extra: from the checkout's pyproject.toml, since an editable install's metadata may be older."""
    project = folder.parent / "pyproject.toml"
    if project.is_file():
        extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
        return [str(line) for line in extras["contender"]]
    marker = re.compile(r"""\s*;\s*extra\s*==\s*['"]contender['"]\s*$""")
    return [marker.sub("", line) for line in metadata.requires("fencepost") or () if marker.search(line)]

"""What a user means by `--client`: one that is registered, a Python file, an executable, or a command in a folder.

    redis-py                             a name, as `fencepost list clients` has them
    ./mylock.py                          a Python file: it alone is sent; with its packages (`needs.py`)
    ./mylock                             an executable file: it alone is sent
    'java -jar lock.jar' with a folder   a command in that folder, all of which is sent
    'mylock --fast'                      a command of a program that the contenders' image has

With an image of his own all of it is a command in that one, in a folder that is sent there or in none, and the image's
own where there is no command.

What is sent is read here, whole, and known by a digest over it: two runs with the same digest ran the same client.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import workloads
from harness import registry
from harness.client import compiled, needs
from harness.errors import UsageError

ADAPTER = "adapter"
"""The contender's side of every client that is brought, by its name among clients; it is nothing by itself."""
MOST_BYTES = 256 << 20
"""Of all that is sent: each contender gets it, at each trial."""
MOST_FILES = 20_000
LEFT_AT_HOME = frozenset({".git", ".hg", ".svn", "__pycache__"})
"""Folders that no client needs, and that are not sent."""
IN_IMAGE = (
    "needs packages of Python, and they can't be installed in an image that is given; have them in that image, and "
    "leave the requirements out"
)
_PROGRAMS = (".jar", ".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh", ".pl", ".php", ".lua")
"""How a word ends that names a file to be run: it must be in the folder that is sent."""


@dataclass(frozen=True)
class Sent:
    """One file as it is sent; with `link`, a symbolic link to that path, which lies in the same folder."""

    content: bytes = b""
    executable: bool = False
    link: str | None = None


@dataclass(frozen=True)
class Brought:
    """A client of the user's own. `command` is what is started, in the folder that `files` lie in (empty: in none).

    `image` is the reference of the image that it lives in, where that isn't the contenders'; without a command the
    image says which.
    """

    command: tuple[str, ...]
    files: Mapping[str, Sent] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    """Requirements, as pip takes them."""
    image: str | None = None

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits over the command, its packages, the image's reference and all that is sent."""
        told = (self.command, self.packages) if self.image is None else (self.command, self.packages, self.image)
        total = hashlib.sha256(repr(told).encode())
        for path, sent in sorted(self.files.items()):
            total.update(
                f"\0{path}\0{sent.link}\0{'x' if sent.executable else '-'}\0{len(sent.content)}\0".encode(
                    errors="surrogateescape"
                )
            )
            total.update(sent.content)
        return total.hexdigest()[:12]

    @property
    def bytes(self) -> int:
        """What all files take."""
        return sum(len(sent.content) for sent in self.files.values())


_known: dict[str, Brought] = {}
"""By digest: what was read once is run until this process ends, whatever becomes of the user's files meanwhile."""


def known(digest: str) -> Brought:
    """The client that `take` read in this process."""
    return _known[digest]


def take(client: str | None, folder: str | None = None, image: str | None = None) -> Brought:
    """As `read`, or `in_image` where there is one, and kept for `known`."""
    if image is not None:
        brought = in_image(client, folder, image)
    else:
        assert client is not None
        brought = read(client, folder)
    return _known.setdefault(brought.digest, brought)


def is_registered(client: str, folder: str | None = None) -> bool:
    """Whether this names a client that is registered, and not one that is brought."""
    return folder is None and client != ADAPTER and client in registry.names("clients")


def is_ours(client: str | None, folder: str | None = None, image: str | None = None) -> bool:
    """Whether a trial's client is a registered one, or the system's own (None), and not one that is brought."""
    return image is None and (client is None or is_registered(client, folder))


def adapters() -> dict[str, Path]:
    """The adapters in Python that come with Fencepost, by name: each a file that says what packages it needs."""
    found = {}
    for path in sorted(Path(workloads.__file__).parent.glob("adapters/libraries/*.py")):
        if needs.inline(path.read_text(), str(path)) is not None:
            found[path.stem.replace("_", "-")] = path
    return found


def names(client: str | None, folder: str | None = None, image: str | None = None) -> tuple[str, ...]:
    """What a client may be called, the shortest first; the last is no other client's. Looks at no file."""
    if image is not None:
        return _names_in_image(client, folder, image)
    assert client is not None
    if is_registered(client, folder):
        return (client,)
    words = _words(client)
    if folder is None and _is_path(words[0]):
        path = Path(words[0])
        return path.stem, f"{path.parent.name}/{path.stem}", client
    if folder is None:
        return words[0], client
    main = next((word for word in words if Path(word).suffix in _PROGRAMS), words[0])
    stem, here = Path(main).stem, Path(folder).name
    return stem, f"{here}/{stem}", f"{here}: {client}", f"{folder}: {client}"


def _names_in_image(client: str | None, folder: str | None, image: str) -> tuple[str, ...]:
    last = image.rsplit("/", 1)[-1]
    short = last.partition("@")[0].partition(":")[0]
    if client is None:
        return short, last, image
    words = _words(client)
    main = next((word for word in words if Path(word).suffix in _PROGRAMS), words[0])
    stem = Path(main).stem
    sent = "" if folder is None else f"{folder}: "
    return stem, f"{short}/{stem}", f"{last}/{stem}", f"{sent}{client} in {image}"


def placed(client: str, folder: str | None, base: Path) -> tuple[str, str | None]:
    """The same client with paths that hold in whatever folder one is: those that are relative are so to `base`."""
    if folder is not None:
        return client, str(_absolute(folder, base))
    if is_registered(client):
        return client, None
    words = _words(client)
    if not _is_path(words[0]):
        return client, None
    first = str(_absolute(words[0], base))
    return shlex.join([first, *words[1:]]), None


def read(client: str, folder: str | None = None) -> Brought:
    """What is meant, with all that is to be sent, read. Relative paths are so to the folder one is in.

    UsageError says what isn't there, or can't be sent.
    """
    words = _words(client)
    if folder is not None:
        return _in_folder(words, Path(folder))
    if _is_path(words[0]):
        return _alone(words, Path(words[0]).expanduser())
    if len(words) == 1:
        if (path := adapters().get(client)) is not None:
            return _alone(words, path)
        if client in compiled.sources():
            return _in_folder([f"./{client}"], compiled.built(client))
        raise UsageError(f"{unknown(client)}; a file of your own is written ./{client}")
    for word in words[1:]:
        if not word.startswith("-") and os.path.isfile(word):
            raise UsageError(f"{word} is a file here, and would not be on a node; give its folder as client_dir")
    return Brought(tuple(words))


def in_image(client: str | None, folder: str | None, image: str) -> Brought:
    """A command in an image of the user's own, with the folder that is sent there, read; `image` is not looked at.

    UsageError says what isn't there, or can't be sent.
    """
    if client is None:
        if folder is not None:
            raise UsageError("which command is to be started in the folder that is sent? give client too")
        return Brought((), image=image)
    words = _words(client)
    if folder is None:
        return Brought(tuple(words), image=image)
    found = _in_folder(words, Path(folder))
    if found.packages:
        raise UsageError(IN_IMAGE)
    return replace(found, image=image)


def unknown(client: str) -> UsageError:
    """The error of a name that no client has."""
    if client == ADAPTER:
        return UsageError(f"{ADAPTER!r} is no client by itself: name the program that it is to run")
    return registry.unknown("clients", client, [*adapters(), *compiled.sources()])


def _words(client: str) -> list[str]:
    try:
        words = shlex.split(client)
    except ValueError as error:
        raise UsageError(f"{client!r} can't be read as a command: {error}") from error
    if not words or not words[0]:
        raise UsageError("is empty")
    return words


def _is_path(word: str) -> bool:
    return "/" in word or word.endswith(".py")


def _absolute(path: str, base: Path) -> Path:
    return Path(os.path.normpath(base / Path(path).expanduser()))


def _alone(words: list[str], path: Path) -> Brought:
    """One file, which is sent alone."""
    sent = read_file(path)
    if path.suffix == ".py":
        source = sent.content.decode(errors="replace")
        packages = needs.inline(source, str(path))
        if packages is None:
            packages = _beside(path.parent)
        return Brought(("python3", "-u", path.name, *words[1:]), {path.name: sent}, tuple(packages))
    if not sent.executable:
        raise UsageError(f"{path} is not executable (`chmod +x {path}`), and no Python file by its name (.py)")
    return Brought((f"./{path.name}", *words[1:]), {path.name: sent})


def _beside(folder: Path) -> list[str]:
    listed = folder / needs.FILE
    return needs.listed(read_file(listed).content, str(listed)) if listed.exists() else []


def _in_folder(words: list[str], folder: Path) -> Brought:
    """A command in a folder, all of which is sent."""
    files = dict(walk(folder))
    program, *rest = words
    own = os.path.normpath(program)
    if "/" in program or own in files:
        _must_be_there(own, program, files, folder)
        if own.endswith(".py"):
            words = ["python3", "-u", own, *rest]
        elif not _real(own, files).executable:
            raise UsageError(f"{folder / own} is not executable (`chmod +x {folder / own}`)")
        else:
            words = [f"./{own}", *rest]
    elif own.endswith(".py"):
        _must_be_there(own, program, files, folder)
    for word in rest:
        if Path(word).suffix in _PROGRAMS and not word.startswith("-") and not word.startswith("/"):
            _must_be_there(os.path.normpath(word), word, files, folder)
    main = next((word for word in words if os.path.normpath(word) in files), words[0])
    packages = needs.listed(files[needs.FILE].content, str(folder / needs.FILE)) if needs.FILE in files else []
    source = files.get(os.path.normpath(main))
    if source is not None and main.endswith(".py"):
        said = needs.inline(source.content.decode(errors="replace"), str(folder / main))
        packages = packages if said is None else said
    return Brought(tuple(words), files, tuple(packages))


def _real(path: str, files: Mapping[str, Sent]) -> Sent:
    """The file that a path names, whatever links lead to it."""
    sent = files[path]
    for _ in range(40):
        if sent.link is None:
            return sent
        path = os.path.normpath(os.path.join(os.path.dirname(path), sent.link))
        sent = files.get(path, Sent())
    return sent


def _must_be_there(path: str, word: str, files: Mapping[str, Sent], folder: Path) -> None:
    if path.startswith(("/", "../")) or path == "..":
        raise UsageError(f"{word} lies outside of {folder}, which is all that is sent")
    if path not in files:
        raise UsageError(f"there is no file {word} in {folder}")


def read_file(path: Path) -> Sent:
    """One file as it is sent. UsageError where it isn't there, or is none."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{path} is a folder; name a command to be started in it, and give it as client_dir")
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{path} is no file, but a device, a pipe or a socket")
        if found.st_size > MOST_BYTES:
            raise UsageError(f"{path} has {_mebibytes(found.st_size)}, and at most {_mebibytes(MOST_BYTES)} are sent")
        return Sent(path.read_bytes(), bool(found.st_mode & 0o111))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error


def walk(folder: Path) -> Iterator[tuple[str, Sent]]:
    """All files of a folder by their paths in it. Counted before any is read."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: {'is no folder' if folder.exists() else 'no such folder'}")
    found: list[tuple[str, Path, os.stat_result]] = []

    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename} can't be read: {error.strerror}") from error

    for where, folders, names in os.walk(folder, onerror=refuse):
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        folders[:] = sorted(name for name in folders if name not in LEFT_AT_HOME and name not in links)
        for name in sorted([*names, *links]):
            path = Path(where, name)
            found.append((path.relative_to(folder).as_posix(), path, path.lstat()))
    if len(found) > MOST_FILES:
        raise UsageError(f"{folder} has {len(found):,} files, and at most {MOST_FILES:,} are sent")
    total = sum(status.st_size for _, _, status in found)
    if total > MOST_BYTES:
        largest, _, status = max(found, key=lambda each: each[2].st_size)
        raise UsageError(
            f"{folder} has {_mebibytes(total)}, and at most {_mebibytes(MOST_BYTES)} are sent to each node (the "
            f"largest file: {largest}, {_mebibytes(status.st_size)})"
        )
    for name, path, status in found:
        if stat.S_ISLNK(status.st_mode):
            yield name, Sent(link=_link(folder, path))
        elif stat.S_ISREG(status.st_mode):
            yield name, read_file(path)
        else:
            raise UsageError(f"{path} is no file, but a device, a pipe or a socket, and can't be sent")


def _link(folder: Path, path: Path) -> str:
    """Where a symbolic link leads, from the folder that it is in. UsageError for one that leads out of what is sent."""
    root = folder.resolve()
    try:
        target = path.resolve()
    except (RuntimeError, OSError):  # the first before Python 3.13
        raise UsageError(f"{path} is a symbolic link that leads to itself") from None
    if target == path.absolute() or os.path.islink(target):
        raise UsageError(f"{path} is a symbolic link that leads to itself")
    if not target.is_relative_to(root):
        raise UsageError(f"{path} is a symbolic link to {os.readlink(path)}, out of the folder that is sent")
    return os.path.relpath(target, path.parent.resolve())


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"

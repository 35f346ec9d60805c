"""Where trees are kept: a folder of this user's own, of layers that are complete from the moment they can be seen.

    layers/<digest>.<generation>/root        the directory that overlayfs gets
    layers/<digest>.<generation>/layer.json  what it is; whoever uses the layer holds a shared lock on this file
    drafts/                                  what is being made or removed; whatever is found here later is rubbish
    claims/<checkout>                        the layers that a checkout uses, one a line
    lock                                     held by the one process that makes or removes layers

A digest says what a layer was made from. One that is made anew from the same (fresher packages, another certificate
authority) is another generation with a name of its own, and the layers above it are made anew too: each notes the
layer that it stands on, for it fits no other.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import RuntimeUnavailable
from harness.private import caches, keep_private

ENVIRONMENT = "FENCEPOST_TREES"
"""Names another folder."""

_LAYER = "layer.json"


def default_folder() -> Path:
    """FENCEPOST_TREES, else `fencepost/trees` in this user's folder for caches."""
    if named := os.environ.get(ENVIRONMENT):
        return Path(named).absolute()
    if (folder := caches("trees")) is None:
        raise RuntimeUnavailable(f"this user has no home folder to keep trees in; set {ENVIRONMENT}")
    return folder


@dataclass(frozen=True)
class Layer:
    """A layer that is there. `on` names the one that it was made upon, None for the lowest.

    `id` is its own alone. `origin`: "made" or "exported"; `source`: from what, in words. `authorities`: the fingerprint
    of the certificate authorities that were put into it, "" where none belong. `image`: the id of the image that it was
    exported from. `config`: what that image says of its program.
    """

    name: str
    digest: str
    on: str | None
    id: str
    origin: str
    source: str
    bytes: int
    made: float
    version: str | None = None
    authorities: str = ""
    image: str = ""
    config: dict[str, Any] = field(default_factory=dict)


class Cache:
    """The folder of layers. Reading needs no lock; only whoever holds the lock may publish or remove."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self._layers, self._drafts, self._claims = (self.folder / each for each in ("layers", "drafts", "claims"))

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    def prepare(self) -> None:
        """Make the folder, and see that layers can be kept there. RuntimeUnavailable says why not, and the remedy."""
        elsewhere = f"set {ENVIRONMENT} to a folder of this user's on a local disk"
        if strange := {sign for sign in str(self.folder) if sign in ":,\\" or sign.isspace()}:
            raise RuntimeUnavailable(
                f"trees can't be kept in {self.folder}: overlayfs can't be told of a path with {' '.join(strange)!r} "
                f"in it; {elsewhere}"
            )
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeUnavailable(f"trees can't be kept in {self.folder}: {error.strerror}; {elsewhere}") from error
        keep_private(self.folder, ENVIRONMENT)
        try:
            for each in (self._layers, self._drafts, self._claims):
                each.mkdir(exist_ok=True)
            if os.statvfs(self.folder).f_flag & os.ST_NOEXEC:
                raise RuntimeUnavailable(
                    f"trees can't be kept in {self.folder}: programs there may not be executed (mounted noexec); "
                    f"{elsewhere}"
                )
            os.setxattr(self._drafts, "user.fencepost", b"1")
        except OSError as error:
            what = error.strerror or str(error)
            hint = "" if error.filename != str(self._drafts) else " (NFS and old kernels' tmpfs keep no attributes)"
            raise RuntimeUnavailable(f"trees can't be kept in {self.folder}: {what}{hint}; {elsewhere}") from error

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """What the machine refuses while layers are written (no room, a folder that has gone) is said in a sentence."""
        try:
            yield
        except OSError as error:
            raise RuntimeUnavailable(
                f"trees can't be kept in {self.folder}: {error.strerror or error} ({error.filename}); make room, or "
                f"set {ENVIRONMENT} to another folder"
            ) from error

    # -- layers --------------------------------------------------------------------------------------------------------

    def root(self, layer: Layer) -> Path:
        """The directory that holds a layer's files."""
        return self._layers / layer.name / "root"

    def all(self) -> dict[str, Layer]:
        """Every layer by its name, the newest first."""
        found = []
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._layers):
                if layer := self._read(entry.name):
                    found.append(layer)
        return {layer.name: layer for layer in sorted(found, key=lambda layer: (-layer.made, layer.name))}

    def chain(self, digests: Sequence[str], layers: dict[str, Layer] | None = None) -> tuple[Layer, ...] | None:
        """The layers for these digests (the lowest first), the topmost first; None unless all of them are there.

        Of several generations the newest one counts of which all that it stands on is there.

        Args:
            layers: what `all` gave, for several calls about one moment.
        """
        known = self.all() if layers is None else layers
        for top in (layer for layer in known.values() if layer.digest == digests[-1]):
            found = [top]
            while (on := found[-1].on) is not None and on in known:
                found.append(known[on])
            if found[-1].on is None and [layer.digest for layer in reversed(found)] == list(digests):
                return tuple(found)
        return None

    def publish(self, made: Path, layer: Layer) -> None:
        """Make a folder in a draft, with nothing in it but `root`, the layer: all of it is there at once.

        It is on the disk first, since nothing that made it waited for that (`harness/images/inside.py`): a machine that
        loses its power has a layer whole, or not at all.
        """
        (made / _LAYER).write_text(json.dumps(asdict(layer), indent=1) + "\n")
        descriptor = os.open(made, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
                raise RuntimeUnavailable(f"{self.folder} can't be written to: {os.strerror(ctypes.get_errno())}")
        finally:
            os.close(descriptor)
        made.rename(self._layers / layer.name)

    def remove(self, layer: Layer) -> str:
        """Returns what became of it: `removed`, or why it was kept."""
        try:
            file = (self._layers / layer.name / _LAYER).open("rb")
        except FileNotFoundError:
            return "removed"
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return "kept: a process uses it"
            with self.draft() as draft:
                (self._layers / layer.name).rename(draft / layer.name)
        return "removed"

    def hold(self, layers: Iterable[Layer]) -> list[int]:
        """Keep layers from being removed, until the file descriptors that this returns are closed everywhere.

        Raises:
            RuntimeUnavailable: one was removed a moment ago.
        """
        held: list[int] = []
        for layer in layers:
            try:
                descriptor = os.open(self._layers / layer.name / _LAYER, os.O_RDONLY | os.O_CLOEXEC)
                held.append(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                for each in held:
                    os.close(each)
                raise RuntimeUnavailable(
                    f"a tree's layer {layer.name} is being removed by another process; `fencepost images` makes it anew"
                ) from error
        return held

    # -- drafts --------------------------------------------------------------------------------------------------------

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A new folder to make something in, which is removed at the end with all that is still in it."""
        folder = self._drafts / f"{os.getpid()}-{os.urandom(6).hex()}"
        folder.mkdir()
        try:
            yield folder
        finally:
            remove_tree(folder)

    def sweep(self) -> int:
        """Remove what others left behind unfinished. For whoever holds the lock: nobody else makes drafts then.

        Returns:
            how many there were.
        """
        left = list(self._drafts.iterdir())
        for each in left:
            remove_tree(each)
        return len(left)

    # -- claims --------------------------------------------------------------------------------------------------------

    def claim(self, checkout: str, layers: Iterable[Layer]) -> set[str]:
        """Note that a checkout uses these layers, and no others any more.

        Returns:
            the names of those that it used before and nobody uses now.
        """
        before = self._claimed(checkout)
        now = {layer.name for layer in layers}
        if now != before:
            draft = self._claims / f".{checkout}.{os.getpid()}"
            draft.write_text("".join(f"{name}\n" for name in sorted(now)))
            draft.rename(self._claims / checkout)
        return before - self.claimed()

    def claim_more(self, checkout: str, layers: Iterable[Layer]) -> None:
        """Note that a checkout uses these layers too."""
        known = self.all()
        more = {layer.name: layer for layer in layers}
        before = {name: known[name] for name in self._claimed(checkout) if name in known}
        if not more.keys() <= before.keys():
            self.claim(checkout, (before | more).values())

    def claimed(self) -> set[str]:
        """The names of the layers that any checkout claims."""
        return {name for file in self._claims.glob("[!.]*") for name in self._claimed(file.name)}

    def _claimed(self, checkout: str) -> set[str]:
        try:
            return set((self._claims / checkout).read_text().split())
        except FileNotFoundError:
            return set()

    def _read(self, name: str) -> Layer | None:
        try:
            return Layer(**json.loads((self._layers / name / _LAYER).read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError) as error:
            raise RuntimeUnavailable(
                f"{self._layers / name / _LAYER} isn't what this Fencepost wrote ({error}); remove {self.folder}"
            ) from error


def new_layer(digest: str, on: Layer | None, root: Path, *, origin: str, source: str, **more: Any) -> Layer:
    """What is to be known of a layer whose files are in `root`, under a name that no other has."""
    token = os.urandom(20).hex()
    return Layer(
        name=f"{digest}.{token[:8]}",
        digest=digest,
        on=on.name if on else None,
        id=f"sha256:{token}",
        origin=origin,
        source=source,
        bytes=disk_bytes(root),
        made=time.time(),
        **more,
    )


def disk_bytes(folder: Path) -> int:
    """What everything below a folder takes on disk; a file of several names counts once."""
    total, seen = 0, set()
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            found = os.lstat(os.path.join(where, name))
            if found.st_nlink == 1 or stat.S_ISDIR(found.st_mode) or (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total


def remove_tree(folder: Path) -> None:
    """Remove a folder whatever the modes of those in it: overlayfs leaves one that nobody may enter, images too."""
    folder.chmod(0o700)
    for where, folders, _ in os.walk(folder):
        for name in folders:
            inner = os.path.join(where, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)

"""Making one layer: Debian itself, a step of a table on top of what is there, or the files of an engine's image."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker

from harness.errors import RuntimeUnavailable
from harness.images import debian
from harness.images.authorities import fingerprint
from harness.images.build import LABEL, version_of
from harness.images.chamber import chambered, run, search_path, tried
from harness.images.chamber import why_not as chamber_why_not
from harness.images.halting import Halt
from harness.images.table import VERSION_FILE, script
from harness.trees.cache import ENVIRONMENT, Cache, Layer, new_layer
from harness.trees.plan import AUTHORITIES, Part

_FILES = "/dev/fencepost"
"""Where a step finds its files inside: /dev is memory there, so that nothing of it stays."""

_UPPER, _MADE = "/dev/fencepost-upper", "/dev/fencepost-made"
"""Where it finds what it has written, and where that is to be copied to, should it be in memory."""

_REACHED = ("/etc/resolv.conf", "/etc/hosts")
"""The machine's own files by which names are found, seen inside as well."""

_OVERLAYFS = 0x794C7630

_BOUND = (*_REACHED, "/etc/hostname")
"""Empty files that whoever runs a tree can bind theirs upon; Docker's images have them too."""

_EMPTY = ("dev", "proc", "sys", "tmp", "var/tmp")
"""Folders of which nothing belongs to a layer."""

_UNWANTED = ("var/cache/apt", "var/lib/apt/lists", "var/log")
"""Folders of which nothing of Debian's own making is of use later."""


_OVERLAY = """
set -eu
[ "$2" = no ] || mount -t tmpfs none "$1"
cd "$1"
mkdir lower upper work mount
mount -t overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work none mount
mkdir mount/folder
"""


def why_not(cache: Cache) -> str | None:
    """Why no layer can be written here as a step needs it, and the remedy; None when it can. Tries, under the lock."""
    if reason := chamber_why_not():
        return reason
    with cache.draft() as draft:
        done = tried(["/bin/sh", "-c", _OVERLAY, "-", str(draft), "yes" if on_overlay(draft) else "no"])
    if done.returncode == 0:
        return None
    words = " ".join(done.stderr.split())
    return (
        f"overlayfs can't be used in a user namespace at {cache.folder} ({words}): it takes Linux 5.11 or newer with "
        f"the module overlay (`sudo modprobe overlay`), and a local file system; {ENVIRONMENT} names another folder"
    )


def make_debian(cache: Cache, digest: str, stop: threading.Event) -> Layer:
    """The lowest layer: Debian, as mmdebstrap makes it."""
    with cache.draft() as draft:
        made = draft / "made"
        made.mkdir()
        root = made / "root"
        source = debian.make(draft, root, stop, pretend=True)
        for folder in (*_EMPTY, *_UNWANTED):
            _empty(root / folder)
        for name in _BOUND:
            (root / name.lstrip("/")).write_bytes(b"")
            (root / name.lstrip("/")).chmod(0o644)
        if not (root / "etc" / "mtab").is_symlink():
            (root / "etc" / "mtab").symlink_to("/proc/mounts")
        layer = new_layer(digest, None, root, origin="made", source=source)
        cache.publish(made, layer)
    return layer


def make_step(
    cache: Cache,
    part: Part,
    below: Sequence[Layer],
    authorities: Mapping[str, bytes],
    settings: Mapping[str, str],
    stop: threading.Event,
) -> Layer:
    """The layer of a step.

    Args:
        below: the layers that it stands on, the topmost first.
        authorities: the host's certificate authorities, for a step that wants them: file name -> PEM.
        settings: variables for the step's commands besides the image's own (proxies, where pip finds packages).

    Raises:
        RuntimeUnavailable: a command of it failed, or `stop` was set.
    """
    assert part.step is not None
    with cache.draft() as draft:
        root = draft / "made" / "root"
        for folder in (draft / "files", draft / "mount", draft / "written", root):
            folder.mkdir(parents=True)
        files = {path: content for path, (content, _) in part.taken().items()}
        executable = {path for path, (_, may) in part.taken().items() if may}
        if part.has_authorities:
            files |= {f"{AUTHORITIES}{name}": content for name, content in authorities.items()}
            (draft / "files" / AUTHORITIES).mkdir(exist_ok=True)
        for path, content in files.items():
            file = draft / "files" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(0o755 if path in executable else 0o644)
        commands = [*_copying(part.step.files), *script(part.step)]
        binds = {_FILES: str(draft / "files"), **{name: name for name in _REACHED if os.path.exists(name)}}
        nested = on_overlay(draft)
        if nested:
            # Whatever is written is kept in memory, since an overlay can't lie on top of an overlay, and copied then.
            binds |= {_UPPER: str(draft / "written" / "upper"), _MADE: str(root)}
            commands.append(f"cp -a {_UPPER}/. {_MADE}/")
        command = chambered(
            ["/bin/sh", "-c", "\n".join(["set -eu", *commands])],
            root=str(draft / "mount"),
            layers=[str(cache.root(layer)) for layer in below],
            written=str(draft / "written"),
            memory=nested,
            binds=binds,
            pretend=True,
        )
        environment = {"PATH": search_path(), "HOME": "/root", **settings, **part.env}
        run(command, environment, stop, f"making the tree of {part.image} (step {part.number})")
        if not nested:
            root.rmdir()
            (draft / "written" / "upper").rename(root)
        for name in _EMPTY:
            _empty(root / name)
        layer = new_layer(
            part.digest,
            below[0],
            root,
            origin="made",
            source=f"step {part.number} of {part.image}",
            version=_version(root),
            authorities=fingerprint(dict(authorities)) if part.has_authorities else "",
        )
        cache.publish(draft / "made", layer)
    return layer


def export(
    cache: Cache, client: docker.DockerClient, digest: str, reference: str, image: dict[str, Any], halt: Halt
) -> Layer:
    """One layer with all that an image of the engine's holds; `image` is how the engine describes it.

    Raises:
        RuntimeUnavailable: it can't be unpacked here.
        Halted: it was ended early.
    """
    with cache.draft() as draft:
        root = draft / "made" / "root"
        root.mkdir(parents=True)
        container = str(client.api.create_container(image["Id"], command=["true"], labels={LABEL: "1"})["Id"])
        try:
            with halt.streams(client, f"/containers/{container}/export"):
                _unpack(client.api.export(container), root, reference)
        finally:
            client.api.remove_container(container, v=True, force=True)
        for folder in ("dev", "proc", "sys"):
            (root / folder).mkdir(exist_ok=True)
        layer = new_layer(
            digest,
            None,
            root,
            origin="exported",
            source=reference,
            image=str(image["Id"]),
            version=version_of(image) or _version(root),
            config=_config(image),
        )
        cache.publish(draft / "made", layer)
    return layer


def on_overlay(folder: Path) -> bool:
    """Whether a folder is itself on an overlay, as in a container's own file system."""
    # statfs(2) begins with the kind of the file system, a long, on all machines that Debian runs on.
    answer = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(folder), answer) != 0:
        raise RuntimeUnavailable(f"{folder} can't be looked at: {os.strerror(ctypes.get_errno())}")
    return ctypes.c_long.from_buffer(answer).value == _OVERLAYFS


def _copying(files: Mapping[str, str]) -> Iterator[str]:
    """The commands that do what COPY does: into a folder that ends in "/", else under a new name."""
    for source, target in files.items():
        folder = target.rstrip("/") if target.endswith("/") else os.path.dirname(target)
        yield f"mkdir -p {shlex.quote(folder)}"
        what = f"{_FILES}/{source}." if source.endswith("/") else f"{_FILES}/{source}"
        yield f"cp -R --preserve=mode {shlex.quote(what)} {shlex.quote(target)}"


def _unpack(chunks: Iterator[bytes], root: Path, reference: str) -> None:
    command = ["tar", "-x", "-p", "--no-same-owner", "--anchored", "--exclude=dev/*", "--exclude=proc/*"]
    command += ["--exclude=sys/*", "--exclude=.dockerenv", "-C", str(root)]
    with os.fdopen(os.memfd_create("errors"), "w+b") as errors:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors) as tar:
            assert tar.stdin is not None
            try:
                for chunk in chunks:
                    tar.stdin.write(chunk)
                tar.stdin.close()
            except BrokenPipeError:
                pass  # tar says why below
            except BaseException:
                tar.kill()
                raise
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().splitlines()
    if tar.returncode != 0:
        raise RuntimeUnavailable(f"{reference} can't be unpacked as a tree: {words[0] if words else 'tar failed'}")


def _config(image: Mapping[str, Any]) -> dict[str, Any]:
    """What an image says of its program, in the words of `Running`."""
    said = image.get("Config") or {}
    env = dict(entry.partition("=")[::2] for entry in said.get("Env") or ())
    return {
        "entrypoint": said.get("Entrypoint") or [],
        "command": said.get("Cmd") or [],
        "env": env,
        "workdir": said.get("WorkingDir") or "/",
        "user": said.get("User") or "",
        "volumes": sorted(said.get("Volumes") or {}),
        "stop_signal": said.get("StopSignal") or "SIGTERM",
    }


def _version(root: Path) -> str | None:
    """What the layer itself notes of the version of what it holds."""
    file = root / VERSION_FILE.lstrip("/")
    return file.read_text().strip() if file.is_file() and not file.is_symlink() else None


def _empty(folder: Path) -> None:
    """Remove what is in a folder, if it is there; a whiteout, which hides something below, too."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)

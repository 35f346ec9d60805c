"""How a brought client gets to a contender's node, and what the contender is told of it.

Its files are unpacked anew for each trial in a folder that holds nothing else, by the node's own `tar`. Its packages
are there already: they are in the image (`harness.images.brought`). One that has an image of its own lives in that
one's file system, beside the node's own, and its files are unpacked in there.
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile
from collections.abc import Mapping
from typing import Any

from harness.client.brought import Brought, Sent, walk
from harness.client.plugged import Plugged
from harness.errors import HarnessError, UsageError
from harness.images import brought as images
from harness.images.theirs import Theirs
from harness.runtime.base import HoldsImages, Node
from workloads.adapters import inside
from workloads.clients.adapter import HELLO_SECONDS, PYTHON

FOLDER = "/opt/fencepost/brought"
"""Where its files are, on a node."""

_UNPACK = 'rm -rf "$1" && mkdir -p "$1" && cd "$1" && exec tar -x --no-same-owner'
_PLUG = 'cd /opt/fencepost && rm -rf -- "$1" "$1.py" && exec tar -x --no-same-owner'
_FIND = 'cd "$1" && command -v -- "$2"'

SEND_SECONDS = 20.0
BYTES_A_SECOND = 4 << 20
"""What a node takes at the least, on a machine with more to do."""
LOOK_SECONDS = 20.0
GREETING = ("python3", "-m", "workloads.adapters.greeting")


def send(node: Node, brought: Brought) -> None:
    """Have its files on a node, and nothing of an earlier client's. HarnessError with the node's own words."""
    if not brought.files:
        return
    within = SEND_SECONDS + brought.bytes / BYTES_A_SECOND
    done = node.run(["sh", "-c", _UNPACK, "sh", FOLDER], stdin=archive(brought.files), timeout_seconds=within)
    if done.exit_code != 0:
        raise HarnessError(f"the client's files can't be unpacked on {node.name}: {_last_words(done.stderr)}")


def plug(node: Node, plugged: Plugged) -> None:
    """Have a package of somebody else's beside our own on a node, in the place of one that its image has."""
    within = SEND_SECONDS + len(plugged.files)
    done = node.run(["sh", "-c", _PLUG, "sh", plugged.name], stdin=archive(plugged.files), timeout_seconds=within)
    if done.exit_code != 0:
        raise HarnessError(f"the package {plugged.name} can't be unpacked on {node.name}: {_last_words(done.stderr)}")


def hold(node: Node, brought: Brought, image: Theirs) -> None:
    """Have the client's image beside a node's own, with its files in there. HarnessError where that fails."""
    if not isinstance(node, HoldsImages):
        raise HarnessError(f"{node.name} can't hold the image of a client")
    helper = {f"{inside.HELPER.lstrip('/')}/{path}": sent for path, sent in walk(PYTHON)}
    own = {f"{FOLDER.lstrip('/')}/{path}": sent for path, sent in brought.files.items()}
    node.hold_image(image.id, archive({**helper, **own}))


def look(node: Node, brought: Brought, system: str, ttl: float, options: Mapping[str, Any]) -> str:
    """Start it on a node on which its files are, and hear what it says it is: its library, version and language.

    UsageError with the node's own words where its program isn't there, or it says no hello. No service is there: it
    must be ready to say what it is before it has reached any, for contenders are started beside their servers.
    """
    settings = told(brought, system, options)
    if brought.image is None:
        _find(node, brought, settings)
    asked = json.dumps({"settings": {"adapter": settings}, "ttl": ttl}).encode()
    greeted = node.run(GREETING, stdin=asked, timeout_seconds=HELLO_SECONDS + LOOK_SECONDS)
    try:
        told_us = json.loads(greeted.stdout)
    except ValueError:
        raise HarnessError(f"`{shlex.join(GREETING)}` failed on {node.name}: {_last_words(greeted.stderr)}") from None
    if "unusable" in told_us:
        raise UsageError(told_us["unusable"])
    return str(told_us["library"])


def _find(node: Node, brought: Brought, settings: Mapping[str, Any]) -> None:
    """UsageError where its program isn't on the node."""
    folder, env = settings["directory"] or "/", settings["environment"]
    program = brought.command[0]
    found = node.run(["sh", "-c", _FIND, "sh", folder, program], env=env, timeout_seconds=LOOK_SECONDS)
    if found.exit_code != 0:
        what = f"`{shlex.join(brought.command)}` can't be started on a contender's node"
        where = node.run(["sh", "-c", 'echo "$PATH"'], env=env, timeout_seconds=LOOK_SECONDS).stdout.decode().strip()
        hint = (
            f"there is no program {program!r} there (in {where}); send one in the client's folder, or give an image "
            "that has it (--image contender=REF)"
        )
        said = f" ({_last_words(found.stderr)})" if found.stderr.strip() else ""
        raise UsageError(f"{what}: {hint}{said}")


def told(brought: Brought, system: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the contender is told of it (`adapter` in its client's settings). `options`: with their secrets."""
    return {
        "system": system,
        "command": list(brought.command),
        "directory": FOLDER if brought.files else None,
        "environment": {"PYTHONPATH": images.FOLDER} if brought.packages else {},
        "options": dict(options),
        **({} if brought.image is None else {"inside": True}),
    }


def archive(files: Mapping[str, Sent]) -> bytes:
    """A tar of them, all root's: modes are reduced to executable or not."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, sent in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            if sent.link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, sent.link
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(sent.content), 0o755 if sent.executable else 0o644
                tar.addfile(entry, io.BytesIO(sent.content))
    return buffer.getvalue()


def _last_words(said: bytes) -> str:
    return "\n".join(said.decode(errors="replace").strip().splitlines()[-3:]) or "it says nothing"

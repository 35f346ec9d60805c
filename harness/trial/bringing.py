"""A client of the user's own in a trial: what can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from harness.client import brought
from harness.client.brought import Brought
from harness.errors import ConfigError, UsageError
from harness.images import why_not
from harness.secrets import dotted

KEYS = ("client_dir", "client_image", "client_options", "client_name", "client_digest")
"""What can be said of a client of the user's own alone."""

IMAGE_GIVEN = (
    "needs packages of Python, which are installed upon the contender's image of Fencepost's own, and one is given in "
    "its place; have the packages in that image, and leave the requirements out"
)


MOST_NAME = 60
"""Characters of what a client is called."""


class Asked(Protocol):
    """What is looked at of a trial's config."""

    @property
    def client(self) -> str | None: ...
    @property
    def client_dir(self) -> str | None: ...
    @property
    def client_image(self) -> str | None: ...
    @property
    def client_name(self) -> str | None: ...
    @property
    def client_digest(self) -> str | None: ...


def placed(data: Mapping[str, Any], *, path: Path | str | None, key: str | None) -> dict[str, Any]:
    """A trial's keys with paths of its client that hold anywhere: those in a file are relative to its folder."""
    found = dict(data)
    client, folder, image = found.get("client"), found.get("client_dir"), found.get("client_image")
    if not isinstance(client, str) or not isinstance(folder, str | None):
        return found
    if image is not None and folder is None:  # all of it is a command in there
        return found
    base = Path.cwd() if path is None else Path(path).absolute().parent
    try:
        found["client"], where = brought.placed(client, folder, base)
    except UsageError as error:
        raise ConfigError(path, dotted(key, "client"), str(error)) from error
    if where is not None:
        found["client_dir"] = where
    return found


def check(config: Asked, bad: Callable[[str, str], ConfigError]) -> Brought | None:
    """The client that the user brings, read; None where it is the system's own or a registered one.

    Raises `bad(key, reason)` for what isn't there, can't be sent, or isn't what it was.
    """
    image = config.client_image
    if brought.is_ours(config.client, config.client_dir, image):
        for key in KEYS:
            if getattr(config, key):
                raise bad(key, "is for a client of your own (client = a file or a command)")
        return None
    name = config.client_name
    if name is not None and (not name.isprintable() or not 0 < len(name.strip()) <= MOST_NAME):
        raise bad("client_name", f"must be up to {MOST_NAME} characters that can be printed")
    if image is not None and (reason := why_not(image)) is not None:
        raise bad("client_image", reason)
    try:
        client = brought.take(config.client, config.client_dir, image)
    except UsageError as error:
        raise bad("client", str(error)) from error
    if config.client_digest not in (None, client.digest):
        raise bad(
            "client_digest",
            f"the client's files, packages or command are not what they were ({config.client_digest} then, "
            f"{client.digest} now); without it they are taken as they are",
        )
    return client

"""Building one image through Docker's plain build API (no BuildKit needed), and reading what came out."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote_plus

import docker
from docker.errors import APIError, ImageNotFound

from harness import secrets
from harness.errors import RuntimeUnavailable
from harness.images.authorities import extra_authorities, fingerprint
from harness.images.halting import Halt, Halted, Steps
from harness.images.recipes import REPOSITORY, Recipe, checkout

log = logging.getLogger(__name__)

LABEL = "fencepost"
"""Label key that everything of ours carries, with the value 1."""

BUILD_TIMEOUT = 900.0
"""Seconds that one step of a build may stay silent."""

PIP_SECONDS = 300.0
"""How long pip may take to tell its settings. It needs half a second of a processor; beside sixty other processes that
was once more than 30 s. All that it reads is on this machine, so that only one that does nothing at all takes longer.
"""

_VERSION_FILE = "/etc/fencepost-version"
_PROXY = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")
_PIP = ("index-url", "extra-index-url", "trusted-host")


def labels(name: str, **more: str) -> dict[str, str]:
    """The labels of an image of ours."""
    return {LABEL: "1", f"{LABEL}.image": name, **{f"{LABEL}.{key}": value for key, value in more.items()}}


@dataclass(frozen=True)
class Built:
    """The outcome of a build."""

    tag: str
    version: str | None
    seconds: float


def build(client: docker.DockerClient, recipe: Recipe, base: str, halt: Halt, *, fresh: bool = False) -> Built:
    """Builds a recipe on the image `base` and tags it.

    Args:
        halt: ends it early; then what it has made so far is removed.
        fresh: don't reuse the layers of an earlier build.

    Raises:
        RuntimeUnavailable: a step failed; carries the end of the build's output.
        Halted: it was ended early.
    """
    began = time.monotonic()
    extra: dict[str, bytes] = {}
    # The version is known once it is built; until then the label hides that of the image below.
    more = {"digest": recipe.digest, "on": base, "version": ""}
    if recipe.parent is None:
        authorities = extra_authorities()
        extra = {f"ca/{name}": content for name, content in authorities.items()}
        extra["ca/README"] = b"Certificate authorities of the machine that built this image.\n"
        more["authorities"] = fingerprint(authorities)
    # A name of its own until the version is known, so that nobody sees a half-labelled image; and of this checkout's,
    # so that another user's build of the same image doesn't take it away.
    draft = f"{recipe.tag}-draft.{checkout()}"
    image_labels = labels(recipe.name, **more)
    arguments = {"BASE": base, **_arguments(recipe)}
    steps = Steps(client, base)
    try:
        _run(client, recipe.context(extra), draft, image_labels, arguments, recipe.name, fresh, halt, steps)
        version = _version_file(client, draft) if _VERSION_FILE in recipe.files["Dockerfile"][0].decode() else None
        if version:
            image_labels, steps = {f"{LABEL}.version": version}, Steps(client, draft)
            _run(client, _single_file(f"FROM {draft}\n"), recipe.tag, image_labels, {}, recipe.name, False, halt, steps)
        else:
            halt.check()
            repository, _, digest = recipe.tag.partition(":")
            client.api.tag(draft, repository, digest)
    except Halted:
        with suppress(ImageNotFound):
            client.api.remove_image(draft)  # and with it the unnamed ones below it
        steps.remove()
        raise
    client.api.remove_image(draft)
    return Built(recipe.tag, version, time.monotonic() - began)


@dataclass(frozen=True)
class Sizes:
    """What images take on disk, in bytes: each by itself (id -> bytes), and all of them, shared layers counted once."""

    each: Mapping[str, int]
    total: int


def sizes_of(client: docker.DockerClient, ids: Iterable[str]) -> Sizes:
    """Asks the engine. A layer has no name there, so it is known by when and by what it was made."""
    layers: dict[tuple[Any, ...], int] = {}
    each = {}
    for identity in ids:
        history = cast(list[dict[str, Any]], cast(Any, client.api).history(identity))
        layers |= {(step["Created"], step["CreatedBy"], step["Size"]): int(step["Size"]) for step in history}
        each[identity] = sum(int(step["Size"]) for step in history)
    return Sizes(each, sum(layers.values()))


def _arguments(recipe: Recipe) -> dict[str, str]:
    """The host's proxies and, for an image that declares them, its settings of pip."""
    dockerfile = recipe.files["Dockerfile"][0].decode()
    return settings(pip="ARG PIP_INDEX_URL" in dockerfile)


def settings(*, pip: bool) -> dict[str, str]:
    """The host's proxies and, where wanted, the settings of its pip, as variables for what makes an image or a tree."""
    found = {name: value for key in _PROXY for name in (key, key.upper()) if (value := os.environ.get(name))}
    if pip:
        found.update(_pip_settings())
    for value in found.values():
        secrets.notice(value)  # what a build prints is shown when it fails
    return found


def _pip_settings() -> dict[str, str]:
    """Where this host's pip finds packages, from its variables and files alike, as variables for the pip in a build.

    Raises:
        RuntimeUnavailable: it doesn't say: a build without its settings would look in the wrong place, or fail there.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PIP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise RuntimeUnavailable(
            f"`{' '.join(command)}`, which tells where this machine finds Python's packages, was not done within "
            f"{PIP_SECONDS:g} s: the machine is too busy, or a file that pip reads is on a disk that doesn't answer; "
            "try it, and again then: what is made already is kept"
        ) from error
    if done.returncode != 0:
        log.info("this Python has no pip whose settings could be passed on: %s", done.stderr.strip())
        return {}
    # Lines such as `global.index-url='https://…'`, several values parted by \n.
    settings = [line.partition("=")[::2] for line in done.stdout.splitlines()]
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # the later ones win
        for name in _PIP:
            for key, value in settings:
                if key == f"{section}.{name}":
                    found[f"PIP_{name.upper().replace('-', '_')}"] = " ".join(value.strip("'").split("\\n")).strip()
    return found


def _single_file(dockerfile: str) -> bytes:
    recipe = Recipe("version", cast(Any, None), None, None, {"Dockerfile": (dockerfile.encode(), False)})
    return recipe.context({})


def _run(
    client: docker.DockerClient,
    context: bytes,
    tag: str,
    image_labels: Mapping[str, str],
    arguments: Mapping[str, str],
    name: str,
    fresh: bool,
    halt: Halt,
    steps: Steps,
) -> None:
    lines: list[str] = []
    with halt.streams(client, f"/build?t={quote_plus(tag)}"):
        stream = client.api.build(
            fileobj=io.BytesIO(context),
            custom_context=True,
            tag=tag,
            labels=dict(image_labels),
            buildargs=dict(arguments),
            nocache=fresh,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=int(BUILD_TIMEOUT),
            use_config_proxy=True,
        )
        for event in cast(Iterable[dict[str, Any]], stream):
            if "stream" in event:
                lines.append(event["stream"])
                steps.read(event["stream"])
            if "error" not in event:
                continue
            halt.check()  # an engine that was told to stop calls that an error
            tail = "\n".join("".join(lines).splitlines()[-15:])
            raise RuntimeUnavailable(f"building the image {name} failed: {event['error'].strip()}\n{tail}")


def _version_file(client: docker.DockerClient, reference: str) -> str:
    """The version that the Dockerfile wrote down once its packages were installed. The container is never started."""
    container = client.api.create_container(reference, labels={LABEL: "1"})
    try:
        chunks, _ = client.api.get_archive(container, _VERSION_FILE)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            member = archive.extractfile(archive.getmembers()[0])
            assert member is not None
            return member.read().decode().strip()
    finally:
        client.api.remove_container(container, v=True, force=True)


def inspect(client: docker.DockerClient, reference: str) -> dict[str, Any] | None:
    """Docker's description of an image, None when the engine doesn't have it."""
    try:
        return cast(dict[str, Any], cast(Any, client.api).inspect_image(reference))
    except ImageNotFound:
        return None


def version_of(image: Mapping[str, Any]) -> str | None:
    """The version of the software in an image: our label, else the labels and variables that official images set."""
    config = image.get("Config") or {}
    found = config.get("Labels") or {}
    environment = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
    for value in (found.get(f"{LABEL}.version"), found.get("org.opencontainers.image.version"), found.get("version")):
        if value:
            return str(value)
    for variable in ("REDIS_VERSION", "PG_VERSION"):
        if variable in environment:
            return str(environment[variable].partition("-")[0])
    # The official ZooKeeper image says it only by the folder that it works in.
    folder = re.search(r"apache-zookeeper-([\d.]+)-bin", config.get("WorkingDir") or "")
    return folder[1] if folder else None


def tags_of_ours(client: docker.DockerClient) -> list[tuple[str, str]]:
    """(image name, tag) of every image of ours, by its label and name; the id stands for an image without any tag."""
    found = []
    for image in client.api.images(filters={"label": f"{LABEL}=1"}):
        name = (image.get("Labels") or {}).get(f"{LABEL}.image")
        tags = [tag for tag in image.get("RepoTags") or () if tag != "<none>:<none>"]
        if name and not tags:
            found.append((str(name), str(image["Id"])))
        found += [(str(name), str(tag)) for tag in tags if tag.startswith(f"{REPOSITORY}/{name}:")]
    return found


def remove_tags(client: docker.DockerClient, tags: Iterable[str]) -> dict[str, str]:
    """Removes images by their tags or ids, save those that a container uses.

    Returns:
        tag or id -> what became of it: `removed`, `already gone`, or `kept: …` with the engine's reason.
    """
    outcome = {}
    for tag in tags:
        try:
            client.api.remove_image(tag)
            outcome[tag] = "removed"
        except ImageNotFound:
            outcome[tag] = "already gone"
        except APIError as error:
            if error.status_code != 409:  # conflict: a container uses it
                raise
            outcome[tag] = f"kept: {error.explanation}"
    return outcome

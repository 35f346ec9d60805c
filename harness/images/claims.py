"""Which checkout uses which built image, written down on the engine itself, so that none removes another's.

A tag is a hash of the sources, so two checkouts with the same sources share one image, and one with other sources has
another. Whoever replaces an image must not take it from a checkout that still uses it. Therefore every checkout gives
each image that it uses a second tag of its own, its *claim*: `fencepost/contender:<hash>.<checkout>`. It gives up its
claims on what it has replaced, and the image goes with the last one. A label could not do this: it says who built an
image, never who else has used it since.

What nobody claims (built before there were claims, or left by a checkout that is gone) stays until `prune`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

import docker
from docker.errors import ImageNotFound

from harness.images.build import inspect, remove_tags, tags_of_ours
from harness.images.recipes import checkout

_CLAIM = re.compile(r"^(?P<tag>.+:[^/]+)\.(?P<checkout>[0-9a-f]{12})$")


def split(tag: str) -> tuple[str, str | None]:
    """A tag without its claim, and whose claim it is; None when it is none.

    >>> split("fencepost/node:4b0f0c32fdca.0123456789ab")
    ('fencepost/node:4b0f0c32fdca', '0123456789ab')
    """
    match = _CLAIM.match(tag)
    return (match["tag"], match["checkout"]) if match else (tag, None)


def claim(client: docker.DockerClient, tags: Iterable[str]) -> None:
    """Notes that this checkout uses these images; those that the engine doesn't have are passed over.

    A claim on the image that had this tag before moves on to the one that has it now; the old one goes if that was all
    that it was called by.
    """
    mine = checkout()
    for tag in tags:
        image = inspect(client, tag)
        claimed = f"{tag}.{mine}"
        if image is None or claimed in (image.get("RepoTags") or ()):
            continue
        before = inspect(client, claimed)
        _tag(client, tag, claimed)
        if before is not None and before.get("RepoTags") == [claimed]:
            remove_tags(client, [str(before["Id"])])


def replaced(client: docker.DockerClient, current: Container[str]) -> list[str]:
    """The tags, `current` left out, that this checkout still claims."""
    mine = checkout()
    ours = [split(tag) for _, tag in tags_of_ours(client)]
    return sorted({tag for tag, whose in ours if whose == mine and tag not in current})


def release(client: docker.DockerClient, current: Container[str]) -> dict[str, str]:
    """Gives up this checkout's claims on everything but `current`, and removes what nobody else claims.

    Returns:
        tag -> what became of it: `removed`, or why it was kept. One that a container uses is tried again the next time.
    """
    mine = checkout()
    ours = [split(tag) for _, tag in tags_of_ours(client)]
    outcome: dict[str, str] = {}
    for tag in replaced(client, current):
        if any(other == tag and whose not in (None, mine) for other, whose in ours):
            remove_tags(client, [f"{tag}.{mine}"])
            outcome[tag] = "left to another checkout that uses it"
            continue
        # The claim goes last: with it the engine still refuses when a container uses the image, and we try again.
        if (tag, None) in ours:
            remove_tags(client, [f"{tag}.{mine}"])
            outcome[tag] = remove_tags(client, [tag])[tag]
            if outcome[tag].startswith("kept"):
                _tag(client, tag, f"{tag}.{mine}")
        else:
            outcome[tag] = remove_tags(client, [f"{tag}.{mine}"])[f"{tag}.{mine}"]
    return outcome


def prune(client: docker.DockerClient, current: Container[str]) -> dict[str, str]:
    """Removes everything of ours but `current` and what a container uses, whoever claims it.

    Returns:
        tag or id -> what became of it.
    """
    return _remove(client, [tag for _, tag in tags_of_ours(client) if split(tag)[0] not in current])


def remove_all(client: docker.DockerClient) -> dict[str, str]:
    """Removes every image of ours that no container uses, whoever claims it; as `prune`, but with nothing kept."""
    return _remove(client, [tag for _, tag in tags_of_ours(client)])


def _remove(client: docker.DockerClient, tags: list[str]) -> dict[str, str]:
    """Removes tags with the claims on them; claims are not told of unless one is all that an image had."""
    claims = [tag for tag in tags if split(tag)[1]]
    plain = [tag for tag in tags if not split(tag)[1]]
    outcome = remove_tags(client, claims)
    outcome |= remove_tags(client, plain)
    return {tag: told for tag, told in outcome.items() if split(tag)[0] not in plain or not split(tag)[1]}


def _tag(client: docker.DockerClient, source: str, target: str) -> None:
    repository, _, tag = target.rpartition(":")
    try:
        client.api.tag(source, repository, tag)
    except ImageNotFound:
        return  # another process removed it this moment: whoever needs it is told that it is missing

"""The images that trials run in: which one to use now, and getting those that are missing.

Every image comes in one of three ways. *given*: the user named it (`--image etcd=REFERENCE`, FENCEPOST_IMAGE_ETCD).
*pulled*: the official image, where a registry answers. *built*: from `docker/<name>/Dockerfile`, on Debian's own image
or, without any registry, on one bootstrapped from Debian's packages. All three are command-compatible, so that nothing
else needs to know which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import docker

from harness.engine import connect, telling
from harness.errors import UsageError
from harness.images import claims
from harness.images.brought import forget as forget_brought
from harness.images.build import Sizes, sizes_of
from harness.images.catalogue import Catalogue, ImageRef, Origin
from harness.images.dockerfile import dockerfile
from harness.images.halting import Halt, Halted
from harness.images.maker import Maker, Pull, bootstrapped, one_at_a_time
from harness.images.recipes import REPOSITORY, every, load_all, names, of_version, spelled, unknown, versions
from harness.images.references import BUILT, from_environment, why_not

__all__ = [
    "BUILT",
    "Halt",
    "Halted",
    "ImageRef",
    "Origin",
    "Pull",
    "Sizes",
    "connect",
    "dockerfiles",
    "ensure",
    "forget_brought",
    "from_environment",
    "listing",
    "names",
    "of_version",
    "prune",
    "remove_all",
    "resolve",
    "sizes",
    "spelled",
    "versions",
    "why_not",
]


def resolve(
    client: docker.DockerClient, wanted: Iterable[str], overrides: Mapping[str, str] | None = None
) -> dict[str, ImageRef]:
    """Which image to use now for each name. Never builds or pulls. Claims built ones, so that no other checkout on this
    engine removes them (`harness.images.claims`).

    Args:
        overrides: image name -> reference, or `BUILT`; before FENCEPOST_IMAGE_<NAME> of the environment.

    Raises:
        RuntimeUnavailable: some are missing; names them and the command that gets them.
        UsageError: a name that has no Dockerfile and no reference.
    """
    with telling("looking for images"):
        found = Catalogue(client, overrides).need(wanted)
        claims.claim(client, [image.reference for image in found.values() if image.origin == "built"])
        return found


def ensure(
    client: docker.DockerClient,
    wanted: Iterable[str],
    *,
    report: Callable[[str], None],
    pull: Pull = "auto",
    overrides: Mapping[str, str] | None = None,
    halt: Halt | None = None,
) -> dict[str, ImageRef]:
    """Pulls or builds what is missing, and says for each image what it did, from what, and how long that took.

    Args:
        report: takes one line of text; called from several threads.
        pull: `never` asks no registry; `auto` prefers published images for what is missing and builds where that fails;
            `always` pulls even what is present, and builds the rest anew.
        overrides: as for `resolve`.
        halt: its `stop`, called by another thread, ends it soon, with nothing half made left.

    Raises:
        Halted: it was ended so.
        RuntimeUnavailable: an image could neither be pulled nor built.
        UsageError: a name that has no Dockerfile and no reference.
    """
    with telling("getting images"):
        return _ensure(Catalogue(client, overrides), wanted, report, pull, halt or Halt())


def _ensure(
    catalogue: Catalogue, wanted: Iterable[str], report: Callable[[str], None], pull: Pull, halt: Halt
) -> dict[str, ImageRef]:
    """As `ensure`. The catalogue was read once: a source that changes while its image is built counts the next time."""
    wanted = list(dict.fromkeys(wanted))
    present = {name: image for name in wanted if (image := catalogue.present(name)) and pull != "always"}
    if len(present) < len(wanted):
        with one_at_a_time(report, halt.check):
            # Somebody else may have made them while this process waited.
            missing = [name for name in wanted if pull == "always" or catalogue.present(name) is None]
            Maker(catalogue, report, pull, halt).make(missing)
    for name, image in present.items():
        report(f"{name}: present, {image.reference}{f' ({image.version})' if image.version else ''}, {image.origin}")
    halt.check()
    current = {recipe.tag for recipe in catalogue.recipes.values()}
    claims.claim(catalogue.client, sorted(current))
    if claims.replaced(catalogue.client, current):
        with one_at_a_time(report, halt.check):
            for tag, told in claims.release(catalogue.client, current).items():
                report(f"{tag}: superseded, {told}")
    return catalogue.need(wanted)


def listing(client: docker.DockerClient, overrides: Mapping[str, str] | None = None) -> dict[str, ImageRef | None]:
    """Every image that trials can need, None where it is missing; of versions that aren't usual only what is there."""
    with telling("listing images"):
        catalogue = Catalogue(client, overrides)
        found = {name: catalogue.present(name) for name in every(catalogue.recipes)}
        return {name: image for name, image in found.items() if image is not None or name in names()}


def sizes(client: docker.DockerClient, found: Iterable[ImageRef | None]) -> Sizes:
    """What images take on the engine's disk."""
    with telling("measuring images"):
        return sizes_of(client, {image.id for image in found if image})


def dockerfiles(wanted: Iterable[str]) -> Iterator[str]:
    """The Dockerfile of each, as its table says.

    Raises:
        UsageError: there is no such image, or it has no table.
    """
    wanted = [spelled(name) for name in wanted]
    if not wanted:
        raise UsageError("--dockerfile: name the images")
    recipes = load_all()
    for name in wanted:
        recipe = recipes.get(name)
        if recipe is None:
            raise unknown(name)
        if recipe.table is None:
            raise UsageError(f"{recipe.folder} has no image.toml: its Dockerfile was written by hand")
        yield dockerfile(recipe.table, REPOSITORY)


def prune(client: docker.DockerClient) -> dict[str, str]:
    """Removes every built image that this checkout doesn't use and no container does, those of other checkouts too.

    Returns:
        tag or id -> what became of it: `removed`, or why it was kept.
    """
    with telling("removing images"), one_at_a_time(lambda line: None):
        current = {recipe.tag for recipe in Catalogue(client).recipes.values()}
        return claims.prune(client, current | {bootstrapped()})


def remove_all(client: docker.DockerClient) -> dict[str, str]:
    """Removes every image of ours that no container uses, by label alone. Pulled ones stay: they may be others' too.

    Returns:
        tag -> what became of it: `removed`, or why it was kept.
    """
    with telling("removing images"):
        return claims.remove_all(client)

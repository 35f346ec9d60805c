"""The images that trials run in: which one to use now, and getting those that are missing.

Every image comes in one of three ways. *given*: the user named it (`--image etcd=REFERENCE`, FENCEPOST_IMAGE_ETCD). *pulled*:
the official image, where a registry answers. *built*: from `docker/<name>/Dockerfile`, on Debian's own image or, without any
registry, on one bootstrapped from Debian's packages. All three are command-compatible, so that nothing else needs to know.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import docker
from docker.errors import DockerException
from harness.errors import RuntimeUnavailable, UsageError
from harness.images import debian
from harness.images.authorities import extra_authorities, fingerprint
from harness.images.build import LABEL, build, inspect, labels, remove_superseded, version_of
from harness.images.recipes import HIDDEN, REPOSITORY, Recipe, load_all, names, unknown
from harness.images.registry import Registries

__all__ = ["BUILT", "ImageRef", "Origin", "Pull", "connect", "ensure", "listing", "names", "remove_all", "resolve"]

Origin = Literal["built", "pulled", "given"]
Pull = Literal["auto", "never", "always"]

BUILT = "built"
"""In place of a reference: use the image built here, even where the official one is present."""

DEBIAN = "debian"
"""Name under which a user can give the image that built ones stand on."""

_DEBIAN_OFFICIAL = "debian:trixie-slim"
# Two builds keep two cores busy; the third uses what they leave while they wait for the network.
_PARALLEL_BUILDS = 3


@dataclass(frozen=True)
class ImageRef:
    """An image that the engine has. `id` is its content's digest, `version` that of the software inside, if known."""

    name: str
    reference: str
    origin: Origin
    id: str
    version: str | None


def connect() -> docker.DockerClient:
    """A client of the engine that DOCKER_HOST or the default socket names, in the newest API version both know.

    Raises:
        RuntimeUnavailable: no engine answers there.
    """
    try:
        return docker.from_env(version="auto")
    except DockerException as error:
        where = os.environ.get("DOCKER_HOST") or "its default socket"
        raise RuntimeUnavailable(
            f"no Docker engine answers at {where} ({error}): start it, or set DOCKER_HOST; `fencepost doctor` tells more"
        ) from error


def resolve(
    client: docker.DockerClient, wanted: Iterable[str], overrides: Mapping[str, str] | None = None
) -> dict[str, ImageRef]:
    """Which image to use now for each name. Never builds or pulls.

    Args:
        overrides: image name -> reference, or `BUILT`; before FENCEPOST_IMAGE_<NAME> of the environment.

    Raises:
        RuntimeUnavailable: some are missing; names them and the command that gets them.
        UsageError: a name that has no Dockerfile and no reference.
    """
    recipes = load_all()
    chosen = _overrides(overrides)
    found = {name: _present(client, name, recipes, chosen) for name in wanted}
    missing = [name for name, image in found.items() if image is None]
    if missing:
        flags = "".join(f" --image {name}={chosen[name]}" for name in missing if name in chosen)
        raise RuntimeUnavailable(
            f"image{'s' if len(missing) > 1 else ''} missing: {', '.join(missing)}; "
            f"get {'them' if len(missing) > 1 else 'it'} with `fencepost images {' '.join(missing)}{flags}`"
        )
    return {name: image for name, image in found.items() if image is not None}


def ensure(
    client: docker.DockerClient,
    wanted: Iterable[str],
    *,
    report: Callable[[str], None],
    pull: Pull = "auto",
    overrides: Mapping[str, str] | None = None,
) -> dict[str, ImageRef]:
    """Pulls or builds what is missing, and says for each image what it did, from what, and how long that took.

    Args:
        report: takes one line of text; called from several threads, one at a time.
        pull: `never` asks no registry; `auto` prefers published images for what is missing and builds where that fails;
            `always` pulls even what is present, and builds the rest anew.
        overrides: as for `resolve`.

    Raises:
        RuntimeUnavailable: an image could neither be pulled nor built.
        UsageError: a name that has no Dockerfile and no reference.
    """
    wanted = list(dict.fromkeys(wanted))
    recipes = load_all()
    chosen = _overrides(overrides)
    have = {name: _present(client, name, recipes, chosen) for name in wanted}
    if pull == "always" or None in have.values():
        with _one_at_a_time(report):
            # Somebody else may have made them while this process waited.
            have = {name: None if pull == "always" else _present(client, name, recipes, chosen) for name in wanted}
            _Maker(client, recipes, chosen, report, pull).make([name for name, image in have.items() if image is None])
    for name, image in have.items():
        if image is not None:
            report(f"{name}: present, {describe(image)}")
    # Tags of ours that a newer source has replaced, of all images and not just of those wanted now.
    for tag in remove_superseded(client, {name: recipe.tag for name, recipe in recipes.items()}):
        report(f"removed {tag}, superseded")
    return resolve(client, wanted, overrides)


def describe(image: ImageRef) -> str:
    """`etcd 3.5.16 (built, fencepost/etcd:…)` without the name: reference, version and origin in words."""
    return f"{image.reference}{f' ({image.version})' if image.version else ''}, {image.origin}"


def listing(client: docker.DockerClient, overrides: Mapping[str, str] | None = None) -> dict[str, ImageRef | None]:
    """Every image that trials can need, None where it is missing."""
    recipes = load_all()
    chosen = _overrides(overrides)
    return {name: _present(client, name, recipes, chosen) for name in names()}


def remove_all(client: docker.DockerClient) -> list[str]:
    """Removes every image of ours that no container uses, by label alone. Pulled ones stay: they may be others' too.

    Returns:
        the tags that were removed.
    """
    return remove_superseded(client, dict.fromkeys([*load_all(), DEBIAN], ""))


def _overrides(given: Mapping[str, str] | None) -> dict[str, str]:
    """What the user named, from the environment and, before it, from flags or configuration."""
    prefix = "FENCEPOST_IMAGE_"
    environment = {
        key.removeprefix(prefix).lower().replace("_", "-"): value
        for key, value in os.environ.items()
        if key.startswith(prefix) and value
    }
    return {**environment, **(given or {})}


def _present(
    client: docker.DockerClient, name: str, recipes: Mapping[str, Recipe], chosen: Mapping[str, str]
) -> ImageRef | None:
    given = chosen.get(name)
    recipe = recipes.get(name) if name not in HIDDEN else None
    if given and given != BUILT:
        candidates: list[tuple[str, Origin]] = [(given, "given")]
    elif recipe is None:
        raise unknown(name)
    else:
        candidates = [(recipe.tag, "built")]
        if recipe.official and given != BUILT:
            candidates.insert(0, (recipe.official, "pulled"))
    for reference, origin in candidates:
        if (image := inspect(client, reference)) is not None:
            return ImageRef(name, reference, origin, str(image["Id"]), version_of(image))
    return None


@contextmanager
def _one_at_a_time(report: Callable[[str], None]) -> Iterator[None]:
    """Two processes that build the same images at once would do all the work twice, and remove each other's drafts."""
    path = Path(tempfile.gettempdir()) / f"fencepost-images-{os.getuid()}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that gets images")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Maker:
    """Gets a set of images, those below them first, side by side where they don't depend on each other."""

    def __init__(
        self,
        client: docker.DockerClient,
        recipes: Mapping[str, Recipe],
        chosen: Mapping[str, str],
        report: Callable[[str], None],
        pull: Pull,
    ) -> None:
        self._client, self._recipes, self._chosen, self._report, self._pull = client, recipes, chosen, report, pull
        self._registries = Registries(client)
        self._told = False

    def make(self, wanted: Iterable[str]) -> None:
        """Gets the images; the first that fails stops those that haven't begun, and its error is raised."""
        to_build = [name for name in wanted if not self._pulled(name)]
        order: list[Recipe] = []
        for name in to_build:
            self._add(self._recipes[name], order)
        with ThreadPoolExecutor(_PARALLEL_BUILDS, thread_name_prefix="image") as pool:
            running: dict[Future[None], str] = {}
            waiting = {recipe.name: recipe for recipe in order}
            while waiting or running:
                for recipe in [r for r in waiting.values() if not r.parent or not self._pending(r.parent, waiting, running)]:
                    running[pool.submit(self._build, waiting.pop(recipe.name))] = recipe.name
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    running.pop(future)
                    future.result()

    @staticmethod
    def _pending(recipe: Recipe, waiting: Mapping[str, Recipe], running: Mapping[Future[None], str]) -> bool:
        return recipe.name in waiting or recipe.name in running.values()

    def _add(self, recipe: Recipe, order: list[Recipe]) -> None:
        """Appends a recipe after those below it that have to be made first."""
        if recipe in order:
            return
        if recipe.parent and (self._pull == "always" or not self._usable(recipe.parent)):
            self._add(recipe.parent, order)
        order.append(recipe)

    def _usable(self, recipe: Recipe) -> bool:
        """Whether an image can be built upon. A base image made before this host had its present certificate
        authorities can't: pip in the images above would fail in TLS."""
        image = inspect(self._client, recipe.tag)
        if image is None:
            return False
        below = recipe
        while below.parent:
            below = below.parent
        base = image if below is recipe else inspect(self._client, below.tag)
        known = ((base or {}).get("Config") or {}).get("Labels") or {}
        return known.get(f"{LABEL}.authorities") == fingerprint(extra_authorities())

    def _pulled(self, name: str) -> bool:
        """Pulls the given or the official image of a name; False when it has to be built."""
        given = self._chosen.get(name)
        recipe = self._recipes.get(name)
        reference = given if given and given != BUILT else recipe.official if recipe and not given else None
        if reference is None:
            return False
        began = time.monotonic()
        failure = "a registry must not be asked (--pull never)" if self._pull == "never" else self._registries.pull(reference)
        if failure is None:
            self._report(f"{name}: pulled {reference} in {time.monotonic() - began:.1f} s")
            return True
        if given and given != BUILT:
            raise RuntimeUnavailable(f"image {name}: {reference} isn't on this Docker engine and can't be pulled: {failure}")
        if self._pull != "never":
            self._explain(name, reference, failure)
        return False

    def _explain(self, name: str, reference: str, failure: str) -> None:
        """Says why an image isn't pulled; a registry that doesn't answer at all is named once."""
        if self._registries.refusal(reference) is None:
            self._report(f"{name}: pulling {reference} failed ({failure}); building it")
        elif not self._told:
            self._told = True
            self._report(f"registry: out of reach ({failure}); building instead")

    def _build(self, recipe: Recipe) -> None:
        if recipe.parent:
            base = recipe.parent.tag
        else:
            base = self._debian()
        made = build(self._client, recipe, base, fresh=self._pull == "always")
        version = f" ({made.version})" if made.version else ""
        self._report(f"{recipe.name}: built {made.tag}{version} from docker/{recipe.name} on {base} in {made.seconds:.1f} s")

    def _debian(self) -> str:
        """The image that the base stands on: given, pulled, or bootstrapped here."""
        given = self._chosen.get(DEBIAN)
        if given:
            if inspect(self._client, given) is None and (failure := self._registries.pull(given)):
                raise RuntimeUnavailable(f"image {DEBIAN}: {given} isn't on this Docker engine and can't be pulled: {failure}")
            return given
        if self._pull != "never":
            began = time.monotonic()
            if self._pull == "auto" and inspect(self._client, _DEBIAN_OFFICIAL) is not None:
                return _DEBIAN_OFFICIAL
            failure = self._registries.pull(_DEBIAN_OFFICIAL)
            if failure is None:
                self._report(f"{DEBIAN}: pulled {_DEBIAN_OFFICIAL} in {time.monotonic() - began:.1f} s")
                return _DEBIAN_OFFICIAL
            self._explain(DEBIAN, _DEBIAN_OFFICIAL, failure)
        elif inspect(self._client, _DEBIAN_OFFICIAL) is not None:
            return _DEBIAN_OFFICIAL
        return self._bootstrapped()

    def _bootstrapped(self) -> str:
        repository, tag = f"{REPOSITORY}/{DEBIAN}", hashlib.sha256(debian.RECIPE.encode()).hexdigest()[:12]
        reference = f"{repository}:{tag}"
        if self._pull != "always" and inspect(self._client, reference) is not None:
            return reference
        began = time.monotonic()
        origin = debian.bootstrap(self._client, repository, tag, labels(DEBIAN, digest=tag))
        self._report(f"{DEBIAN}: made {reference}, {origin}, in {time.monotonic() - began:.1f} s")
        return reference

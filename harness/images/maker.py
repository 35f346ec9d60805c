"""Getting missing images: pulled where that works, else built, those below first and the rest side by side."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from harness.errors import RuntimeUnavailable
from harness.images import debian
from harness.images.authorities import extra_authorities, fingerprint
from harness.images.build import LABEL, build, inspect, labels
from harness.images.catalogue import Catalogue
from harness.images.halting import Halt
from harness.images.order import in_order
from harness.images.recipes import REPOSITORY, Recipe
from harness.images.registry import Registries
from harness.images.table import SUITE
from harness.private import private_folder

Pull = Literal["auto", "never", "always"]

DEBIAN = "debian"
"""Name under which a user can give the image that built ones stand on."""

DEBIAN_OFFICIAL = f"debian:{SUITE}-slim"

# All images from nothing take two minutes here; a slow mirror may take several times that.
_TURN_SECONDS = 1200.0
_TURN_POLL_SECONDS = 0.1


@contextmanager
def one_at_a_time(
    report: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
    lock: Path | None = None,
    what: str = "images",
) -> Iterator[None]:
    """Two processes that build the same images at once would do all the work twice, and remove each other's drafts.

    `check` is called while waiting and may raise to give up. `lock` is the file to hold, that of images where none is
    given, and `what` says what is made under it.

    Raises:
        RuntimeUnavailable: another process has been at it for longer than all images take.
    """
    path = lock or private_folder("images") / "lock"
    deadline = time.monotonic() + _TURN_SECONDS
    told = False
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                holder = f"process {file.read().strip() or 'unknown'}"
            if not told:
                report(f"waiting for {holder}, which gets {what} too")
                told = True
            if time.monotonic() > deadline:
                raise RuntimeUnavailable(f"{holder} has been getting {what} for {_TURN_SECONDS:g} s; is it stuck?")
            check()
            time.sleep(_TURN_POLL_SECONDS)
        file.seek(0)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def bootstrapped() -> str:
    """The tag of the Debian that is bootstrapped here where none can be pulled."""
    return f"{REPOSITORY}/{DEBIAN}:{hashlib.sha256(debian.RECIPE.encode()).hexdigest()[:12]}"


class Maker:
    """Gets a set of images. Use one for each run: it remembers which registries answered."""

    def __init__(self, catalogue: Catalogue, report: Callable[[str], None], pull: Pull, halt: Halt) -> None:
        self._catalogue, self._report, self._pull, self._halt = catalogue, report, pull, halt
        self._client = catalogue.client
        self._registries = Registries(self._client)
        self._told = False

    def make(self, wanted: Iterable[str]) -> None:
        """Gets the images. After a failure those that are running end, none is begun, and its error is raised.

        The same after the halt, which ends them early.
        """
        order: list[Recipe] = []
        for name in wanted:
            self._halt.check()
            if not self._pulled(name):
                self._plan(self._catalogue.recipes[name], order)
        below = {recipe.name: recipe.parent.name if recipe.parent else None for recipe in order}
        in_order({recipe.name: recipe for recipe in order}, below, self._build, self._halt)

    def _plan(self, recipe: Recipe, order: list[Recipe]) -> None:
        """Appends a recipe, after those below it that have to be made first."""
        if recipe in order:
            return
        if recipe.parent and (self._pull == "always" or not self._usable(recipe.parent)):
            self._plan(recipe.parent, order)
        order.append(recipe)

    def _usable(self, recipe: Recipe) -> bool:
        """Whether an image is there and can be built upon. One on a base image from before this host had its present
        certificate authorities can't: pip in the image above would fail in TLS."""
        chain = [recipe]
        while chain[-1].parent:
            chain.append(chain[-1].parent)
        images = [inspect(self._client, link.tag) for link in chain]
        if None in images:
            return False
        base_labels = ((images[-1] or {}).get("Config") or {}).get("Labels") or {}
        return base_labels.get(f"{LABEL}.authorities") == fingerprint(extra_authorities())

    def _pulled(self, name: str) -> bool:
        """Pulls the given or the official image of a name; False when it has to be built."""
        given = self._catalogue.given(name)
        reference = given or self._catalogue.official(name)
        if reference is None or (self._pull == "never" and not given):
            return False
        began = time.monotonic()
        failure = self._fetch(reference)
        if failure is None:
            self._report(f"{name}: pulled {reference} in {time.monotonic() - began:.1f} s")
            return True
        if given:
            raise RuntimeUnavailable(
                f"image {name}: {reference} isn't on this Docker engine and can't be pulled: {failure}"
            )
        self._explain(name, reference, failure)
        return False

    def _fetch(self, reference: str) -> str | None:
        """Pulls; returns why that failed, None when the image is there."""
        if self._pull == "never":
            return "no registry may be asked (--pull never)"
        return self._registries.pull(reference, self._halt)

    def _explain(self, name: str, reference: str, failure: str) -> None:
        """Says why an image isn't pulled; a registry that doesn't answer at all is named once."""
        if self._registries.refusal(reference) is None:
            self._report(f"{name}: pulling {reference} failed ({failure}); building it")
        elif not self._told:
            self._told = True
            self._report(f"registry: out of reach ({failure}); building instead")

    def _build(self, recipe: Recipe) -> None:
        base = recipe.parent.tag if recipe.parent else self._debian()
        made = build(self._client, recipe, base, self._halt, fresh=self._pull == "always")
        told = f"{made.tag} ({made.version})" if made.version else made.tag
        self._report(f"{recipe.name}: built {told} from docker/{recipe.folder.name} on {base} in {made.seconds:.1f} s")

    def _debian(self) -> str:
        """The image that the base stands on: given, pulled, or bootstrapped here."""
        given = self._catalogue.given(DEBIAN)
        reference = given or DEBIAN_OFFICIAL
        if self._pull != "always" and inspect(self._client, reference) is not None:
            return reference
        began = time.monotonic()
        failure = self._fetch(reference)
        if failure is None:
            self._report(f"{DEBIAN}: pulled {reference} in {time.monotonic() - began:.1f} s")
            return reference
        if given:
            raise RuntimeUnavailable(
                f"image {DEBIAN}: {given} isn't on this Docker engine and can't be pulled: {failure}"
            )
        if self._pull != "never":
            self._explain(DEBIAN, reference, failure)
        return self._bootstrapped()

    def _bootstrapped(self) -> str:
        reference = bootstrapped()
        repository, _, tag = reference.partition(":")
        if self._pull != "always" and inspect(self._client, reference) is not None:
            return reference
        began = time.monotonic()
        origin = debian.bootstrap(self._client, repository, tag, labels(DEBIAN, digest=tag), self._halt.stopped)
        self._report(f"{DEBIAN}: made {reference}, {origin}, in {time.monotonic() - began:.1f} s")
        return reference

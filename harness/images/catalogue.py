"""What images there are and which reference stands for each name now, as read at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import docker

from harness.errors import RuntimeUnavailable
from harness.images.build import inspect, version_of
from harness.images.recipes import HIDDEN, load_all, unknown
from harness.images.references import from_environment, given

Origin = Literal["built", "pulled", "given"]


@dataclass(frozen=True)
class ImageRef:
    """An image that the engine has. `id` is its content's digest, `version` that of the software inside, if known."""

    name: str
    reference: str
    origin: Origin
    id: str
    version: str | None


class Catalogue:
    """The recipes as they are now, and what the user named instead of them."""

    def __init__(self, client: docker.DockerClient, overrides: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.recipes = load_all()
        self._named = {**from_environment(), **(overrides or {})}

    def given(self, name: str) -> str | None:
        """The reference that the user gave for a name, if any. UsageError for one that can't be a reference."""
        return given(self._named, name)

    def official(self, name: str) -> str | None:
        """The published image to prefer, unless the user named another or wants the built one."""
        recipe = self.recipes.get(name)
        return recipe.official if recipe and name not in self._named else None

    def present(self, name: str) -> ImageRef | None:
        """The image that stands for a name, None when the engine has none.

        Raises:
            UsageError: nothing is known under this name.
        """
        recipe = None if name in HIDDEN else self.recipes.get(name)
        candidates: list[tuple[str | None, Origin]]
        if given := self.given(name):
            candidates = [(given, "given")]
        elif recipe is None:
            raise unknown(name)
        else:
            candidates = [(self.official(name), "pulled"), (recipe.tag, "built")]
        for reference, origin in candidates:
            if reference and (image := inspect(self.client, reference)) is not None:
                return ImageRef(name, reference, origin, str(image["Id"]), version_of(image))
        return None

    def need(self, wanted: Iterable[str]) -> dict[str, ImageRef]:
        """The images for these names.

        Raises:
            RuntimeUnavailable: some are missing; names them and the command that gets them.
        """
        found = {name: self.present(name) for name in wanted}
        missing = [name for name, image in found.items() if image is None]
        if missing:
            flags = "".join(f" --image {name}={given}" for name in missing if (given := self.given(name)))
            several = len(missing) > 1
            raise RuntimeUnavailable(
                f"image{'s' if several else ''} missing: {', '.join(missing)}; "
                f"get {'them' if several else 'it'} with `fencepost images {' '.join(missing)}{flags}`"
            )
        return {name: image for name, image in found.items() if image is not None}

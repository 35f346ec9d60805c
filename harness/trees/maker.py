"""Getting missing trees: each layer once, those below first, the rest side by side."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import docker

from harness.errors import RuntimeUnavailable
from harness.images.authorities import extra_authorities, fingerprint
from harness.images.build import inspect, settings
from harness.images.halting import Halt
from harness.images.order import in_order
from harness.images.recipes import HIDDEN, load_all, unknown
from harness.images.references import BUILT, from_environment, given
from harness.trees.cache import Cache, Layer
from harness.trees.making import export, make_debian, make_step, why_not
from harness.trees.plan import Part, Running, parts, running
from harness.trees.tree import Tree

EXPORTED = "exported"


def _tuples(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}


def exported_digest(reference: str) -> str:
    """The digest of the layer that an image was exported to, by what the image is called."""
    return hashlib.sha256(f"export\0{reference}".encode()).hexdigest()[:12]


class Stock:
    """The trees that are there, as read at one moment, for the recipes and what the user named instead of them."""

    def __init__(self, cache: Cache, overrides: Mapping[str, str] | None = None) -> None:
        self.cache = cache
        self.recipes = load_all()
        self._named = {**from_environment(), **(overrides or {})}
        self._layers = cache.all()

    def reread(self) -> None:
        """Look again at what is there."""
        self._layers = self.cache.all()

    def given(self, name: str) -> str | None:
        """The reference that the user gave for a name, if any. UsageError for one that can't be a reference."""
        return given(self._named, name)

    def wants_built(self, name: str) -> bool:
        """Whether the user asked for the one made here."""
        return self._named.get(name) == BUILT

    def part(self, name: str) -> Part | None:
        """The topmost part of a name's tree; None when that can only be exported. UsageError for an unknown name."""
        if self.given(name):
            return None
        recipe = None if name in HIDDEN else self.recipes.get(name)
        if recipe is None:
            raise unknown(name)
        return parts(recipe)

    def chain(self, part: Part) -> tuple[Layer, ...] | None:
        """The layers up to a part that are there, the topmost first."""
        return self.cache.chain([each.digest for each in part.chain()], self._layers)

    def layers(self, name: str) -> tuple[Layer, ...] | None:
        """The layers of the tree that stands for a name, the topmost first; None where it isn't there."""
        part = self.part(name)
        if part is not None and (chain := self.chain(part)):
            return chain
        for reference in self.references(name):
            if chain := self.cache.chain([exported_digest(reference)], self._layers):
                return chain
        return None

    def references(self, name: str) -> list[str]:
        """What the images are called that a name's tree may be exported from; the first that is there counts, which is
        the one that the engine would run."""
        if reference := self.given(name):
            return [reference]
        recipe = self.recipes[name]
        official = [recipe.official] if recipe.official and not self.wants_built(name) else []
        return [*official, recipe.tag]

    def tree(self, name: str) -> Tree | None:
        """The tree that stands for a name."""
        layers = self.layers(name)
        if layers is None:
            return None
        top, recipe = layers[0], self.recipes.get(name)
        if top.origin == EXPORTED:
            how, reference, version = Running(**_tuples(top.config)), top.source, top.version
        else:
            assert recipe is not None
            # A version is that of the system in the image itself: no image above it has it too.
            own = [layer for layer, part in zip(layers, self._parts(name), strict=True) if part.image == name]
            how, reference = running(recipe), recipe.tag
            version = next((layer.version for layer in own if layer.version), None)
        return Tree(
            name=name,
            layers=tuple(self.cache.root(layer) for layer in layers),
            reference=reference,
            id=f"sha256:{hashlib.sha256(' '.join(layer.id for layer in layers).encode()).hexdigest()}",
            origin=top.origin,
            version=version,
            entrypoint=how.entrypoint,
            command=how.command,
            env=how.env,
            workdir=how.workdir,
            user=how.user,
            volumes=how.volumes,
            stop_signal=how.stop_signal,
        )

    def _parts(self, name: str) -> list[Part]:
        top = self.part(name)
        return list(reversed(top.chain())) if top else []


@dataclass
class _Task:
    """One layer to be made. `below` is the layer or the task that it stands on; `layer` is there once it is done."""

    part: Part
    below: _Task | tuple[Layer, ...]
    layer: Layer | None = None
    seconds: float = 0.0

    def chain(self) -> tuple[Layer, ...]:
        below = self.below.chain() if isinstance(self.below, _Task) else self.below
        return (self.layer, *below) if self.layer else below


@dataclass
class Maker:
    """Gets a set of trees. Only whoever holds the cache's lock may use one.

    `client` is the engine to export from, None where there is none; `always` makes what is there anew; `exporting`
    takes from the engine what it holds instead of making it.
    """

    stock: Stock
    report: Callable[[str], None]
    halt: Halt
    client: docker.DockerClient | None = None
    always: bool = False
    exporting: bool = False
    _tasks: dict[str, _Task] = field(default_factory=dict)
    _authorities: Mapping[str, bytes] = field(default_factory=lambda: extra_authorities())

    def make(self, wanted: Iterable[str]) -> None:
        """Gets the trees.

        Raises:
            RuntimeUnavailable: one can't be had; says why, and what to do instead.
            Halted: it was ended early, with nothing half made left.
        """
        exports: list[tuple[str, str, dict[str, Any]]] = []
        tops: dict[str, _Task] = {}
        for name in wanted:
            part = self.stock.part(name)
            found = self._held(name) if part is None or self.exporting else None
            if found is not None:
                exports.append((name, *found))
            elif part is None:
                raise RuntimeUnavailable(self._not_to_be_had(name))
            elif isinstance(top := self._plan(part), _Task):
                tops[name] = top
        if tops and (reason := why_not(self.stock.cache)):
            raise RuntimeUnavailable(f"trees can't be made here: {reason}")
        for name, reference, image in exports:
            self._export(name, reference, image)
        self._make(tops)

    # -- from packages -------------------------------------------------------------------------------------------------

    def _plan(self, part: Part) -> _Task | tuple[Layer, ...]:
        """What has to be made for a part, entered among the tasks; its layers where nothing has to be."""
        if not self.always and (chain := self.stock.chain(part)) and self._fresh(part, chain):
            return chain
        below = self._plan(part.below) if part.below else ()
        on = below.part.digest if isinstance(below, _Task) else below[0].name if below else ""
        return self._tasks.setdefault(f"{part.digest} {on}", _Task(part, below))

    def _fresh(self, part: Part, chain: tuple[Layer, ...]) -> bool:
        """Whether layers can be built upon. Those from before this host had its present certificate authorities can't:
        pip above would fail in TLS."""
        now = fingerprint(dict(self._authorities))
        with_authorities = (
            layer for layer, each in zip(reversed(chain), part.chain(), strict=True) if each.has_authorities
        )
        return all(layer.authorities == now for layer in with_authorities)

    def _make(self, tops: Mapping[str, _Task]) -> None:
        keys = {id(task): key for key, task in self._tasks.items()}
        below = {key: keys.get(id(task.below)) for key, task in self._tasks.items()}
        wanted = {id(task) for task in tops.values()}

        def work(task: _Task) -> None:
            began = time.monotonic()
            under = task.below.chain() if isinstance(task.below, _Task) else task.below
            stop = self.halt.stopped
            try:
                if task.part.step is None:
                    task.layer = make_debian(self.stock.cache, task.part.digest, stop)
                else:
                    passed = settings(pip=bool(task.part.step.settings))
                    task.layer = make_step(self.stock.cache, task.part, under, self._authorities, passed, stop)
            except RuntimeUnavailable:
                self.halt.check()  # whoever was told to stop calls that an error
                raise
            task.seconds = time.monotonic() - began
            self._tell(task, id(task) in wanted)

        in_order(self._tasks, below, work, self.halt)

    def _tell(self, task: _Task, wanted: bool) -> None:
        """Says that an image's last layer is there, or Debian itself, from which all others come."""
        assert task.layer is not None
        if task.part.step is None:
            told, own = f"tree debian: made from {task.layer.source}", [task]
        else:
            recipe = self.stock.recipes[task.part.image]
            if recipe.table is None or task.part.number < len(recipe.table.steps):
                return
            own = [task]
            while isinstance(below := own[-1].below, _Task) and below.part.image == task.part.image:
                own.append(below)
            version = next((f" ({each.layer.version})" for each in own if each.layer and each.layer.version), "")
            told = f"tree {recipe.name}: made {recipe.tag if wanted else 'for others to stand on'}{version}"
        size = sum(each.layer.bytes for each in own if each.layer) / 1e6
        self.report(f"{told}, {size:.0f} MB, in {sum(each.seconds for each in own):.1f} s")

    # -- from an engine ------------------------------------------------------------------------------------------------

    def _held(self, name: str) -> tuple[str, dict[str, Any]] | None:
        """What the image of a name is called on the engine, and how it is described there; None where it has none."""
        if self.client is None:
            return None
        for reference in self.stock.references(name):
            if (image := inspect(self.client, reference)) is not None:
                return reference, image
        return None

    def _export(self, name: str, reference: str, image: dict[str, Any]) -> None:
        assert self.client is not None
        began = time.monotonic()
        layer = export(self.stock.cache, self.client, exported_digest(reference), reference, image, self.halt)
        version = f" ({layer.version})" if layer.version else ""
        self.report(
            f"tree {name}: exported {reference}{version}, {layer.bytes / 1e6:.0f} MB, "
            f"in {time.monotonic() - began:.1f} s"
        )

    def _not_to_be_had(self, name: str) -> str:
        references = " or ".join(self.stock.references(name))
        why = "you named it" if self.stock.given(name) else f"docker/{name} has a Dockerfile, but no image.toml"
        where = "no Docker engine answers" if self.client is None else "the Docker engine doesn't hold it"
        return f"the tree of {name} has to be exported from the image {references} ({why}), and {where}"

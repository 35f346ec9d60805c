"""File trees: what images are to a runtime that has no engine. `tree.py` says what one is.

A tree is *made* from Debian's packages, by anybody, as the image's table says (`docker/<name>/image.toml`), or
*exported* from an image that an engine holds. It is a stack of layers, and trees share their lower ones. They are kept
in a folder of this user's own (`cache.py`); a process that has asked for a tree keeps its layers from being removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import docker

from harness.engine import telling
from harness.errors import HarnessError, RuntimeUnavailable
from harness.images import debian
from harness.images.build import inspect
from harness.images.halting import Halt
from harness.images.maker import one_at_a_time
from harness.images.recipes import checkout, every, names
from harness.trees import making
from harness.trees.cache import Cache, Layer, default_folder
from harness.trees.maker import EXPORTED, Maker, Stock
from harness.trees.tree import Tree

__all__ = [
    "Kept",
    "Tree",
    "default_folder",
    "ensure",
    "hold",
    "kept",
    "listing",
    "missing",
    "must_be_exported",
    "names",
    "need",
    "prune",
    "remove_all",
    "size",
    "why_not",
]

_held: dict[str, int] = {}
"""The layers that this process keeps from being removed: name -> the file descriptor that does it, until it ends."""


def need(names: Iterable[str], overrides: Mapping[str, str] | None = None) -> dict[str, Tree]:
    """The trees for these names, as they are now. Never makes any.

    From here on until this process ends none of their layers is removed; a process that is to outlive it uses `hold`.

    Args:
        overrides: image name -> the reference of an image that was exported, or `built`; before FENCEPOST_IMAGE_<NAME>.

    Raises:
        RuntimeUnavailable: some are missing; names them and the command that gets them.
        UsageError: a name that has no table and no reference.
    """
    cache = Cache()
    stock = Stock(cache, overrides)
    wanted = list(dict.fromkeys(names))
    chains = {name: stock.layers(name) for name in wanted}
    if lacking := [name for name, chain in chains.items() if chain is None]:
        flags = "".join(f" --image {name}={given}" for name in lacking if (given := stock.given(name)))
        several = len(lacking) > 1
        raise RuntimeUnavailable(
            f"file tree{'s' if several else ''} missing: {', '.join(lacking)}; "
            f"get {'them' if several else 'it'} with `fencepost images {' '.join(lacking)}{flags}`"
        )
    layers = {layer.name: layer for chain in chains.values() for layer in chain or ()}
    for name, layer in layers.items():
        if name not in _held:
            _held[name] = cache.hold([layer])[0]
    cache.claim_more(checkout(), layers.values())
    return {name: tree for name in wanted if (tree := stock.tree(name))}


def hold(trees: Iterable[Tree]) -> list[int]:
    """Keep the layers of trees from being removed, as long as one of these file descriptors is open in any process.

    Raises:
        RuntimeUnavailable: one was removed a moment ago.
    """
    cache = Cache()
    known = cache.all()
    wanted = {folder.parent.name for tree in trees for folder in tree.layers}
    if gone := wanted - known.keys():
        raise RuntimeUnavailable(f"a tree's layer {min(gone)} was removed; `fencepost images` makes it anew")
    return cache.hold(known[name] for name in wanted)


class _Busy(Exception):
    """Another process holds the lock."""


def _busy() -> None:
    raise _Busy


def why_not() -> str | None:
    """Why no trees can be made here, and what to do about it; None when they can. By trying, without making any."""
    cache = Cache()
    try:
        cache.prepare()
        with cache.keeping(), one_at_a_time(lambda line: None, _busy, cache.lock, "trees"):
            return debian.lacks() or making.why_not(cache)
    except _Busy:
        return None  # somebody makes trees at this moment
    except (RuntimeUnavailable, HarnessError) as error:
        return str(error)


def missing(names: Iterable[str], overrides: Mapping[str, str] | None = None) -> list[str]:
    """Those of the names whose trees aren't there."""
    stock = Stock(Cache(), overrides)
    return [name for name in names if stock.layers(name) is None]


def must_be_exported(name: str, overrides: Mapping[str, str] | None = None) -> bool:
    """Whether the tree for a name can only come from an engine: the user named an image, or it has no table."""
    return Stock(Cache(), overrides).part(name) is None


def ensure(
    wanted: Iterable[str],
    *,
    report: Callable[[str], None],
    client: docker.DockerClient | None = None,
    overrides: Mapping[str, str] | None = None,
    always: bool = False,
    exporting: bool = False,
    halt: Halt | None = None,
) -> dict[str, Tree]:
    """Makes or exports what is missing, and says for each tree what it did, from what, and how long that took.

    Args:
        report: takes one line of text; called from several threads.
        client: the engine to export from; None where there is none.
        overrides: as for `need`.
        always: makes what is there anew, from fresh packages.
        exporting: takes what the engine holds instead of making it.
        halt: its `stop`, called by another thread, ends it soon, with nothing half made left.

    Raises:
        Halted: it was ended so.
        RuntimeUnavailable: a tree can't be had here; says why and what to do.
        UsageError: a name that has no table and no reference.
    """
    wanted, halt = list(dict.fromkeys(wanted)), halt or Halt()
    cache = Cache()
    stock = Stock(cache, overrides)

    def wanting() -> list[str]:
        return [name for name in wanted if always or stock.layers(name) is None or _changed(stock, client, name)]

    at_first = wanting()
    present = [name for name in wanted if name not in at_first]
    if len(present) < len(wanted):
        cache.prepare()
        with one_at_a_time(report, halt.check, cache.lock, "trees"), cache.keeping(), telling("exporting images"):
            cache.sweep()
            stock.reread()  # somebody else may have made them while this process waited
            Maker(stock, report, halt, client, always, exporting).make(wanting())
            stock.reread()
    found = {name: tree for name in wanted if (tree := stock.tree(name))}
    for name in present:
        version = f" ({found[name].version})" if found[name].version else ""
        report(f"tree {name}: present, {found[name].reference}{version}, {found[name].origin}")
    halt.check()
    _give_up(cache, stock, report, halt)
    return found


def _changed(stock: Stock, client: docker.DockerClient | None, name: str) -> bool:
    """Whether a name's tree was exported from an image whose name means another image on the engine now."""
    layers = stock.layers(name)
    if client is None or not layers or layers[0].origin != EXPORTED:
        return False
    with telling("looking for images"):
        image = inspect(client, layers[0].source)
    return image is not None and str(image["Id"]) != layers[0].image


def _give_up(cache: Cache, stock: Stock, report: Callable[[str], None], halt: Halt) -> None:
    """Note which layers this checkout uses now, and remove those that it used and nobody does any more."""
    current = [layer for name in every(stock.recipes) for layer in stock.layers(name) or ()]
    # What was exported may have been named for one command alone: it stays, save for what its name meant before.
    known = cache.all()
    current += {layer.digest: layer for layer in reversed(known.values()) if layer.origin == EXPORTED}.values()
    left = [known[name] for name in cache.claim(checkout(), current) if name in known]
    if left:
        with one_at_a_time(report, halt.check, cache.lock, "trees"):
            for layer in _topmost_first(left):
                report(f"tree's layer {layer.name} ({layer.source}): superseded, {cache.remove(layer)}")


def listing(overrides: Mapping[str, str] | None = None) -> dict[str, Tree | None]:
    """Every tree that trials can need, None where it is missing; of versions that aren't usual only what is there."""
    stock = Stock(Cache(), overrides)
    found = {name: stock.tree(name) for name in every(stock.recipes)}
    return {name: tree for name, tree in found.items() if tree is not None or name in names()}


def size(tree: Tree) -> int:
    """What a tree takes on disk, in bytes, what it shares with others included."""
    known = Cache().all()
    return sum(known[folder.parent.name].bytes for folder in tree.layers if folder.parent.name in known)


@dataclass(frozen=True)
class Kept:
    """What all layers take: `bytes` on disk in `folder`, and how many of them belong to no tree of this checkout."""

    folder: str
    layers: int
    bytes: int
    unused_bytes: int


def kept() -> Kept:
    """What the trees take on disk, each layer counted once."""
    cache = Cache()
    stock = Stock(cache)
    known = cache.all()
    used = {layer.name for name in every(stock.recipes) for layer in stock.layers(name) or ()}
    return Kept(
        str(cache.folder),
        len(known),
        sum(layer.bytes for layer in known.values()),
        sum(layer.bytes for layer in known.values() if layer.name not in used),
    )


def prune() -> dict[str, str]:
    """Removes every layer that this checkout doesn't use and no process does, those of other checkouts too.

    Returns:
        what it was -> what became of it: `removed`, or why it was kept.
    """
    stock = Stock(Cache())
    return _remove(stock.cache, {layer.name for name in every(stock.recipes) for layer in stock.layers(name) or ()})


def remove_all() -> dict[str, str]:
    """Removes every layer that no process uses; as `prune`, but with nothing kept."""
    return _remove(Cache(), set())


def _remove(cache: Cache, keep: set[str]) -> dict[str, str]:
    if not cache.folder.is_dir():
        return {}
    cache.prepare()
    with one_at_a_time(lambda line: None, lock=cache.lock, what="trees"):
        outcome = {"what was left half made": "removed"} if cache.sweep() else {}
        for layer in _topmost_first(layer for layer in cache.all().values() if layer.name not in keep):
            outcome[f"tree's layer {layer.name} ({layer.source})"] = cache.remove(layer)
        return outcome


def _topmost_first(layers: Iterable[Layer]) -> list[Layer]:
    """So that whoever looks meanwhile finds no layer whose lower one is gone."""
    waiting = {layer.name: layer for layer in layers}
    order: list[Layer] = []
    while waiting:
        below = {layer.on for layer in waiting.values()}
        for name in [name for name in waiting if name not in below]:
            order.append(waiting.pop(name))
    return order

"""A trial at a cluster that exists: what can be asked for there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from harness import registry
from harness.client.brought import is_ours
from harness.errors import ConfigError, UsageError
from harness.systems import attached
from nemesis import faults
from nemesis.targets import on_contender

OURS_ALONE: Mapping[str, str] = {
    "version": "is that of servers of ours; at endpoints it is measured",
    "servers": "says how many servers to start, and none is started at endpoints",
}
"""Keys of a trial that concern servers of ours, and why they can't be given."""


class Asked(Protocol):
    """What is looked at of a trial's config."""

    @property
    def system(self) -> str: ...
    @property
    def endpoints(self) -> Sequence[str]: ...
    @property
    def images(self) -> Mapping[str, str]: ...
    @property
    def client(self) -> str | None: ...
    @property
    def client_dir(self) -> str | None: ...
    @property
    def client_image(self) -> str | None: ...
    @property
    def system_options(self) -> Mapping[str, Any]: ...


def check(config: Asked, options: Mapping[str, Any], bad: Callable[[str, str], ConfigError]) -> None:
    """Raises `bad(key, reason)` for what makes no sense with endpoints. `options`: with their secrets."""
    if not config.endpoints:
        raise bad("endpoint_options", "are for a cluster that exists; give endpoints beside them")
    system = registry.load("systems", config.system)()
    if (reason := attached.why_not(system)) is not None:
        raise bad("endpoints", reason)
    for key, why in OURS_ALONE.items():
        if getattr(config, key):
            raise bad(key, why)
    ours = getattr(system, "client_options", ())
    if others := [name for name in config.system_options if name not in ours]:
        but = f" (its lock client's are {', '.join(ours)})" if ours else ""
        why = f"{', '.join(others)}: settings of servers of ours, and none is started at endpoints{but}"
        raise bad("system_options", why)
    if system.image in config.images:
        raise bad(f"images.{system.image}", "is the image of servers of ours, and none is started at endpoints")
    if not is_ours(config.client, config.client_dir, config.client_image):
        raise bad(
            "client",
            "is one of your own, and those can't be used at endpoints: nobody would keep it to the trial's keys, nor "
            "remove there what it leaves; try it with servers that the trial starts",
        )
    if config.client is not None and not getattr(registry.load("clients", config.client), "attaches", False):
        raise bad("client", f"{config.client} knows only clusters that the trial starts, no endpoints")
    for key, look in (
        ("endpoints", lambda: attached.parse(config.endpoints)),
        ("endpoint_options", lambda: attached.access(config.endpoints, options, attached.own_options(system))),
    ):
        try:
            look()
        except UsageError as error:
            raise bad(key, str(error)) from error


def not_offered(kind: str, target: str, options: Mapping[str, Any]) -> str | None:
    """None for a fault that hits contenders alone, else which there are."""
    if _asks(kind):
        what = "it orders servers about"
    elif kind == "none" or (on_contender(target) and options.get("away_from") != "leader"):
        return None
    else:
        what = "away_from=leader asks who leads" if on_contender(target) else "it hits servers"
    return f"{what}, and those at endpoints aren't ours; what is offered there: {', '.join(offered())}"


def offered() -> list[str]:
    """The names of all faults on contenders."""
    names = []
    for listed in faults.combinations():
        if listed.kind == "none":
            names.append("none")
        if not _asks(listed.kind):
            names += [faults.name_of(listed.kind, target) for target in listed.targets if on_contender(target)]
    return names


def _asks(kind: str) -> bool:
    """Whether a fault gives the servers orders, whomever it is aimed at."""
    return bool(getattr(registry.load("faults", kind), "orders_servers", False))

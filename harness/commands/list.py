"""`fencepost list`: what there is, with a line each."""

from __future__ import annotations

import ast
import json
import sys

import click

from harness import plain
from harness.commands.terminal import wrapped
from harness.systems.base import sizes

KINDS = ("systems", "faults", "workloads", "clients", "verdicts")


def summaries(kind: str) -> dict[str, str]:
    """Name -> one line, for one kind. What fails to load is listed with the reason: a list must not hide it."""
    from harness import images, registry
    from harness.errors import FencepostError
    from harness.systems import roles

    if kind == "clients":
        return _clients()
    found: dict[str, str] = {}
    for name in registry.names(kind):
        try:
            thing = registry.load(kind, name)
        except FencepostError as error:
            found[name] = f"BROKEN: {error}"
            continue
        summary = getattr(thing, "summary", None)
        if not isinstance(summary, str):
            # A verdict is a function: what it asks stands at the head of its module ("lease: did the service …?").
            told = sys.modules[thing.__module__].__doc__ or thing.__doc__ or ""
            summary = told.strip().partition("\n")[0].removeprefix(f"{name}: ").replace("*", "").replace("`", "")
        if kind == "faults":
            targets = ", ".join(f"{name}-{target}" for target in thing.targets) if thing.targets else name
            summary = f"{summary} [{targets}]"
        elif kind == "systems":
            known = ", ".join(role.name for role in roles.roles_of(thing()))
            versions = images.versions(thing.image) if isinstance(getattr(thing, "image", None), str) else []
            had = f"; versions: {', '.join(versions)}" if versions else ""
            summary = f"{summary} [servers: {sizes(thing)}; roles: {known}{had}]"
        found[name] = summary
    return found


def _clients() -> dict[str, str]:
    """The registered clients, with what they stand on, and the adapters that come with Fencepost, with what they need.

    A client's library need not be installed here: it runs on contenders' nodes.
    """
    from harness import registry
    from harness.client import brought, compiled
    from harness.errors import FencepostError

    found: dict[str, str] = {}
    for name in registry.names("clients"):
        if name == brought.ADAPTER:
            continue
        line = registry.headline("clients", name) or "no word on it"
        try:
            client = registry.load("clients", name)
            own = (client.__doc__ or "See").strip().partition("\n")[0]
            line = line if own.startswith("See") else own
            told = [f"library: {getattr(client, 'library', 'unknown')}"]
            told.append("tokens" if getattr(client, "has_tokens", True) else "no tokens")
            told.append("renewals seen" if getattr(client, "renewals_seen", True) else "renewals unseen")
        except FencepostError:
            told = ["its library isn't installed beside fencepost, which it need not be"]
        found[name] = f"{line} [{'; '.join(told)}]"
    for name, path in brought.adapters().items():
        doc = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        found[name] = f"{doc} [adapter; packages: {', '.join(brought.read(name).packages) or 'none'}]"
    for name in compiled.sources():
        state = "built" if compiled.place(name).is_dir() else f"not built yet: {compiled.HOW} {name}"
        found[name] = f"{compiled.headline(name)} [adapter; {state}]"
    return found


@click.command()
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.option("--json", "as_json", is_flag=True, help="For programs: {kind: {name: line}}.")
def command(kind: str | None, as_json: bool) -> None:
    """List systems, faults, workloads, clients and verdicts, with one line each.

    \b
    Examples:
      fencepost list
      fencepost list faults
    """
    listing = {name: summaries(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        click.echo(json.dumps(listing, indent=2))
        return
    for name, entries in listing.items():
        click.echo(click.style(name, bold=True))
        shown = {plain.line(entry): plain.line(line) for entry, line in entries.items()}
        width = max((len(entry) for entry in shown), default=0)
        for entry, line in shown.items():
            click.echo(wrapped(f"  {entry:<{width}}  {line}", width + 4))

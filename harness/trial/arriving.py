"""A client of the user's own on its way to a trial: its packages, a look at it on a node, and what is told of it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness import secrets as values
from harness.client import brought, sending
from harness.client.brought import Brought
from harness.client.plugged import Plugged
from harness.errors import RuntimeUnavailable, UsageError
from harness.images import brought as images
from harness.images.halting import Halt, Halted
from harness.runtime.base import Node, NodeSpec, Runtime
from harness.trial.config import TrialConfig

_OF_PIP = ("No matching distribution found", "Could not find a version", "Invalid requirement", "ResolutionImpossible")
"""How pip says that it isn't the machine or the network that is at fault."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MOST_LINE = 240
"""Characters of a line of pip's that are shown."""


def told_apart(configs: Sequence[TrialConfig]) -> dict[int, str]:
    """A longer name for each of the configs (by its place) whose client has the name of another one."""
    called: dict[str, set[tuple[str, str | None]]] = {}
    for config in configs:
        if config.client is not None:
            called.setdefault(config.client_words() or "", set()).add((config.client, config.client_dir))
    longer: dict[tuple[str, str | None], str] = {}
    for clients in called.values():
        if len(clients) < 2:
            continue
        choices = {each: brought.names(*each) for each in clients}
        for level in range(max(map(len, choices.values()))):
            names = {each: choice[min(level, len(choice) - 1)] for each, choice in choices.items()}
            if len(set(names.values())) == len(names):
                longer |= names
                break
    return {
        place: name
        for place, config in enumerate(configs)
        if config.client is not None and (name := longer.get((config.client, config.client_dir))) is not None
    }


def recorded(client: Brought, config: TrialConfig) -> dict[str, Any]:
    """For trial.json; what it calls itself stands in its contenders' hellos."""
    return {
        "name": config.client_words(),
        "command": list(client.command),
        "digest": client.digest,
        "files": len(client.files),
        "bytes": client.bytes,
        "packages": list(client.packages),
        "image": config.contender_image(),
    }


def get_image(configs: Sequence[TrialConfig], runtime: Runtime, report: Callable[[str], None], halt: Halt) -> None:
    """Have the images with the packages that clients need, before anything else is looked for.

    UsageError with pip's last words where it says that they can't be had, RuntimeUnavailable where it is the machine.
    """
    for client in {id(found): found for config in configs if (found := config.brought_client())}.values():
        if not client.packages:
            continue
        name = images.note(client.packages)
        try:
            runtime.image_versions([name])
        except RuntimeUnavailable:
            report(f"client: installing {', '.join(client.packages)}, once for all runs with the same")
            try:
                runtime.get_images([name], report=report, halt=halt)
            except Halted:
                raise
            except RuntimeUnavailable as error:
                images.drop(name)
                lines = [_shortened(_COLOUR.sub("", line)) for line in str(error).splitlines()]
                own = [line for line in lines if line.startswith("ERROR: ")]
                if any(words in line for words in _OF_PIP for line in own):
                    said = "\n".join(own)
                    raise UsageError(
                        f"client: {', '.join(client.packages)} can't be installed; pip says:\n{said}"
                    ) from error
                raise RuntimeUnavailable("\n".join(lines)) from error


def _shortened(line: str) -> str:
    """Pip lists all the versions that there are, on one line: its beginning and its end say enough."""
    return line if len(line) <= MOST_LINE else f"{line[: MOST_LINE // 2]} … {line[-MOST_LINE // 2 :]}"


def look_first(config: TrialConfig, runtime: Runtime) -> str | None:
    """Have the client's files on a throwaway node, start it there, and hear what it says it is; None for one of ours.

    UsageError says why it can't be started, or says no hello.
    """
    client = config.brought_client()
    if client is None:
        return None
    options = values.reveal(config.client_options)
    site = runtime.open_site(f"c{secrets.token_hex(4)}", images=config.images)
    try:
        (node,) = site.start_nodes([NodeSpec("c0", config.contender_image(), "contender")])
        sending.send(node, client)
        return sending.look(node, client, config.system, config.ttl, options)
    except UsageError as error:
        raise UsageError(f"client: {error}") from error
    finally:
        site.close()


def send(client: Brought | None, packages: Sequence[Plugged], nodes: Sequence[Node]) -> None:
    """Have its files, and packages of plug-ins, on all these nodes. HarnessError with the words of the first one where
    that fails.
    """

    def to(node: Node) -> None:
        if client is not None:
            sending.send(node, client)
        for package in packages:
            sending.plug(node, package)

    if client is None and not packages:
        return
    with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
        for done in [pool.submit(to, node) for node in nodes]:
            done.result()

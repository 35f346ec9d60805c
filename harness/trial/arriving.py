"""A client of the user's own on its way to a trial: its packages, a look at it on a node, and what is told of it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from harness import secrets as values
from harness.client import brought, sending
from harness.client.brought import Brought
from harness.client.plugged import Plugged
from harness.errors import HarnessError, RuntimeUnavailable, UsageError
from harness.images import brought as images
from harness.images.halting import Halt, Halted
from harness.images.theirs import Theirs
from harness.runtime.base import Node, NodeSpec, Runtime, TakesImages
from harness.trial.config import TrialConfig

_OF_PIP = ("No matching distribution found", "Could not find a version", "Invalid requirement", "ResolutionImpossible")
"""How pip says that it isn't the machine or the network that is at fault."""
_OF_IMAGE = ("unable to find user", "unable to find group")
"""How an engine says that an image can't be started as it is."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MOST_LINE = 240
"""Characters of a line of pip's that are shown."""


def told_apart(configs: Sequence[TrialConfig]) -> dict[int, str]:
    """A longer name for each of the configs (by its place) whose client has the name of another one."""
    called: dict[str, set[_Given]] = {}
    for config in configs:
        if (words := config.client_words()) is not None:
            called.setdefault(words, set()).add(_given(config))
    longer: dict[_Given, str] = {}
    for clients in called.values():
        if len(clients) < 2:
            continue
        choices = {each: brought.names(*each) for each in clients}
        for level in range(max(map(len, choices.values()))):
            names = {each: choice[min(level, len(choice) - 1)] for each, choice in choices.items()}
            if len(set(names.values())) == len(names):
                longer |= names
                break
    return {place: name for place, config in enumerate(configs) if (name := longer.get(_given(config))) is not None}


_Given = tuple[str | None, str | None, str | None]
"""By what a client is told from others: what is said of it, its folder, and its image."""


def _given(config: TrialConfig) -> _Given:
    return config.client, config.client_dir, config.client_image


@dataclass(frozen=True)
class Arriving:
    """A client of the user's own, whose command is known, and the image that it lives in, where that is his own too."""

    client: Brought
    image: Theirs | None = None

    def recorded(self, config: TrialConfig) -> dict[str, Any]:
        """For trial.json; what it calls itself stands in its contenders' hellos."""
        client, image = self.client, self.image
        said: dict[str, Any] = {"image": config.contender_image()}
        if image is not None:
            said = {"image": image.reference, "image_id": image.id, "image_digest": image.digest}
        return {
            "name": config.client_words(),
            "command": list(client.command),
            "digest": config.client_digest,
            "files": len(client.files),
            "bytes": client.bytes,
            "packages": list(client.packages),
            **said,
        }


def arriving(config: TrialConfig, runtime: Runtime, report: Callable[[str], None], halt: Halt) -> Arriving | None:
    """The client that a resolved config brings, its image had; None for one of ours.

    UsageError where the image can't be had, or no command is known.
    """
    client = config.brought_client()
    if client is None or client.image is None:
        return None if client is None else Arriving(client)
    if not isinstance(runtime, TakesImages):
        raise UsageError(
            f"client_image: an image needs a container engine, and with runtime {runtime.name} nodes are no "
            "containers; send what is in it (--client ./mylock, a static binary, or --client with --client-dir), or "
            "take --runtime docker"
        )
    image = runtime.take_image(client.image, report=report, halt=halt)
    command = client.command or image.command
    if not command:
        raise UsageError(
            f"client_image: {client.image} says no command (neither ENTRYPOINT nor CMD); give one that is in it: "
            "--client 'COMMAND'"
        )
    return Arriving(replace(client, command=command), image)


def node(config: TrialConfig, name: str = "c0") -> NodeSpec:
    """A contender's node as this config's client needs it."""
    return NodeSpec(name, config.contender_image(), "contender", enters=config.client_image is not None)


def get_image(configs: Sequence[TrialConfig], runtime: Runtime, report: Callable[[str], None], halt: Halt) -> None:
    """Have the images with the packages that clients need, and those that they live in, before anything else is looked
    for.

    UsageError with pip's last words where it says that they can't be had, RuntimeUnavailable where it is the machine.
    """
    for config in configs:
        arriving(config, runtime, report, halt)
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
    comes = arriving(config, runtime, lambda line: None, Halt())
    if comes is None:
        return None
    options = values.reveal(config.client_options)
    site = runtime.open_site(f"c{secrets.token_hex(4)}", images=config.images)
    try:
        nodes = site.start_nodes([node(config)])
        send(comes, (), nodes)
        return sending.look(nodes[0], comes.client, config.system, config.ttl, options)
    except UsageError as error:
        why = ""
        if (image := comes.image) is not None and image.foreign:
            why = f" (the image is for {image.machine}, and this engine's machine is {image.here})"
        elif image is None and "No module named" in str(error):
            why = "; packages that it needs go into its '# /// script' block, or a requirements.txt beside it"
        raise UsageError(f"client: {error}{why}") from error
    except HarnessError as error:
        if comes.image is None or not any(words in str(error) for words in _OF_IMAGE):
            raise
        raise UsageError(f"client_image: {comes.image.reference}: {error}") from error
    finally:
        site.close()


def send(comes: Arriving | None, packages: Sequence[Plugged], nodes: Sequence[Node]) -> None:
    """Have its files or its image, and packages of plug-ins, on all these nodes. HarnessError with the words of the
    first one where that fails.
    """

    def to(node: Node) -> None:
        if comes is not None and comes.image is not None:
            sending.hold(node, comes.client, comes.image)
        elif comes is not None:
            sending.send(node, comes.client)
        for package in packages:
            sending.plug(node, package)

    if comes is None and not packages:
        return
    with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
        for done in [pool.submit(to, node) for node in nodes]:
            done.result()

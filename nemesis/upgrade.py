"""Upgrade: all servers move to another version, one after the other, while the lock is in use.

As an operator does it: one that only follows first, whoever leads last; a server is told to end, the other version
starts over the same data, and the next one waits until the whole cluster is well again. Meanwhile servers of two
versions work together, leadership moves at the end, and whatever one version wrote another has to read. Nothing of it
is undone: from then on the cluster *is* of the other version.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness import registry
from harness.errors import AgentError, UsageError
from harness.images import of_version, versions
from nemesis import targets
from nemesis.base import Environment, Started, Stopped
from nemesis.parameters import Parameters
from nemesis.restart import Restart
from nemesis.targets import Resolved
from nemesis.well import await_well

WELL_SECONDS = 30.0
"""How long the cluster may take to be well again after each server."""
ORDERS = ("leader-last", "leader-first")


def _version(value: Any) -> str:
    """The parameter `to`; whether there is a recipe for it, the system tells."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"parameter 'to' must be a version in quotes, such as '3.5.16', not {value!r}")
    return value


class Upgrade(Restart):
    """`to`: the version that they move to; without it the usual one of the system. `order`: "leader-last" (the default)
    or "leader-first". `grace` as of `Stop`.

    A trial upgrades once: another is skipped. Receipt: of each server, none of its old processes is there, a process
    runs that none of them is, it takes clients, and it says that it is of that version.
    """

    kind = "upgrade"
    summary = "move all servers to another version, one after the other (SIGTERM, then started over the same data)"
    targets: Sequence[str] = ("all",)

    def _take_more(self, taken: Parameters) -> None:
        super()._take_more(taken)
        for name, why in (("service", "all services of a server move"), ("keep_data", "the data stays where it is")):
            if taken.given(name):
                raise UsageError(f"upgrade has no parameter {name!r}: {why}")
        self.to = taken.other("to", _version, None)
        self._by = taken.choice("order", ORDERS)
        self._images: dict[str, str] = {}
        self._done: dict[str, Any] = {}

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """A system of ours that comes in more than one version."""
        image: str = registry.load("systems", system).image
        if len(versions(image)) < 2:
            return f"{system} has a recipe for but one version (see docs/images.md for how another is added)"
        return None

    def images(self, image: str) -> Mapping[str, str]:
        """See `nemesis.base.Exchanges`."""
        known = versions(image)
        return {each: of_version(image, self.to or known[0]) for each in (of_version(image, v) for v in known)}

    def start(self, env: Environment) -> Started:
        """Upgrade one after the other, with somebody to look on."""
        self._images = dict(self.images(registry.load("systems", env.system).image))
        moved = [node for node in env.servers if set(self._moves(env, node).values()) <= {None}]
        if moved:
            now = {node: self._says(env, node) for node in env.servers}
            reason = f"all servers are of version {', '.join(sorted(set(now.values())))} already"
            if len(moved) < len(env.servers):
                reason = f"an upgrade was given up after {', '.join(moved)}"
            return Started("skipped", (), (), {"now": now}, f"{reason}, and a trial upgrades once")
        patience = self.patience or targets.patience_of(env)
        self._witness.summon(env, patience)
        rng = random.Random(f"{self.kind}/{self.seed}")
        return self._strike(env, targets.resolve(env, self.target, rng, patience=patience, service=targets.EVERY))

    def _moves(self, env: Environment, node: str) -> dict[str, str | None]:
        """The services of a node, each with the image that it is to be started from; None: the one that it has."""
        found: dict[str, str | None] = {}
        for part in env.services(node):
            image = env.image(node, part)
            new = self._images.get(image, image)
            found[part] = None if new == image else new
        return found

    def _says(self, env: Environment, node: str) -> str:
        """What a server says that it is; or why it doesn't."""
        try:
            return env.version(node)
        except (AgentError, ValueError, KeyError) as error:
            return f"unknown ({error})"

    def _strike(self, env: Environment, hit: Resolved) -> Started:
        self._hit = hit
        self._watch(env)
        evidence: dict[str, Any] = {"order": self._by, "upgraded": self._done}
        for node in self._in_order(env, hit.nodes):
            done = self._done[node] = {"was": self._says(env, node)}
            if (error := self._move(env, node, done)) is not None:
                return Started("unproven", hit.nodes, (), evidence, f"{node}: {error}")
        return Started("landed", hit.nodes, (), evidence)

    def _in_order(self, env: Environment, nodes: Sequence[str]) -> Iterator[str]:
        """One after the other, whoever leads *then* last or first; where nobody is known to lead, by their names."""
        left, leader_first = list(nodes), self._by == "leader-first"
        while left:
            leader = env.leader() if len(left) > 1 else None
            fitting = [node for node in left if (node == leader) is leader_first] or left
            left.remove(fitting[0])
            yield fitting[0]
            leader_first = False  # the next leader may be one that has moved, or one that would have to move twice

    def _move(self, env: Environment, node: str, done: dict[str, Any]) -> str | None:
        """Move one server, and see it and the whole cluster well; what went wrong, or None."""
        answers, wrong = self._end(env, [node])
        done |= {"stopped": answers.get(node), "images": self._moves(env, node)}
        if wrong:
            return "; ".join(wrong)
        back = done["restarted"] = self._restart(env, node)
        if "error" in back:
            return str(back["error"])

        def ended() -> bool:
            return not any(self._running(env, node, part) for part in env.services(node))

        well, seen, _ = await_well(env, WELL_SECONDS, ended)
        if not well and ended():
            return f"it ended again, from the other version's image; its log says why (the cluster: {seen})"
        if not well:
            return f"the cluster was not well {WELL_SECONDS:g} s after it was started again; seen last: {seen}"
        done["is"] = self._says(env, node)
        self._old.pop(node, None)
        if done["is"] == done["was"]:
            return f"it says that it is of version {done['is']}, as before"
        if self.to is not None and done["is"] != self.to:
            return f"it says that it is of version {done['is']}, and {self.to} was asked for"
        return None

    def _anew(self, env: Environment, node: str, part: str) -> dict[str, Any]:
        image = self._moves(env, node)[part]
        return {} if image is None else {"image": image}

    def stop(self, env: Environment) -> Stopped:
        """Nothing is undone: it is seen what each of them is now. One that was ended and not started is started again;
        one that ended by itself, from the other version, is not.
        """
        if not self._hit.nodes:
            return Stopped("undone")
        half = [node for node in self._old if "restarted" not in self._done[node]]
        back = {node: self._restart(env, node) for node in half}
        problems = [f"{node}: {each['error']}" for node, each in back.items() if "error" in each]
        now = {node: self._says(env, node) for node in self._hit.nodes}
        evidence = {"now": now, **({"restarted": back} if back else {})}
        if problems:
            return Stopped("unproven", evidence, "; ".join(problems))
        words = ", ".join(f"{node} is of version {version}" for node, version in now.items())
        return Stopped("undone", evidence, f"nothing is undone: {words}")

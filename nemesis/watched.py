"""What faults share that are watched while they stand, and after: who leads, and what becomes of a witness.

Of faults on servers both are asked (`nemesis.leading`, `nemesis.witness`); of those on a contender, neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nemesis import holding
from nemesis.base import Environment
from nemesis.leading import Leading
from nemesis.targets import Resolved
from nemesis.witness import Witness


class Watched:
    """A fault with a witness: `Looks` and `Seeks` of nemesis.base. It sets `_hit` once it has resolved its target, and
    calls `_watch` right before it changes anything.
    """

    def __init__(self, target: str, witness: str) -> None:
        """`witness`: one of `nemesis.witness.HOW`."""
        self.target = target
        self._hit = Resolved((), ())
        self._leading = Leading(target)
        self._witness = Witness(witness)

    def _watch(self, env: Environment, silent: Collection[str] = ()) -> None:
        """Of servers: who leads. `silent`: those that can't be asked while the fault is on."""
        if not self._hit.processes:
            self._leading.beside = [node for node in self._hit.nodes if node in env.contenders]
            self._leading.before(env, silent)
            self._witness.begin(env, self._leading.led, silent)

    def ripe(self, env: Environment) -> bool:
        """See `nemesis.witness`."""
        return self._witness.ripe(env)

    def seen(self, env: Environment) -> bool:
        """See `nemesis.witness`."""
        return self._witness.seen(env)

    def told(self) -> Mapping[str, Any] | None:
        """See `nemesis.witness`."""
        return self._witness.told()

    def look(self, env: Environment) -> None:
        """Of servers: who leads by now."""
        if not self._hit.processes:
            self._leading.look(env)


class Seeking(Watched):
    """One that ends at the moment that matters, or when the schedule says, and then sees what a contender does that it
    had hit.
    """

    _undone_ns: int | None = None
    """From when on that counts (ns of the history)."""

    def stands_seconds(self, env: Environment, number: int, usual: float) -> float:
        """As the schedule says."""
        self._witness.turn(number)
        return usual

    def seen(self, env: Environment) -> bool:
        """Of servers: see `nemesis.witness`. Of a contender: what it does now (`holding.went_on`)."""
        if not self._hit.processes:
            return super().seen(env)
        if self._undone_ns is None:
            self._undone_ns = env.now()
        return holding.went_on(env, self._hit.nodes[0], self._undone_ns)

"""Reset: the TCP connections of a contender to the servers are torn down, and the contender lives on.

What a load balancer that restarts, a firewall that forgets its state, or an idle timeout on the way does to a program.
Nothing is lost but the connection: the lease runs on. A client that doesn't connect again in time to renew it, or a
service that takes the connection's end for the lock's, shows it.

The servers' kernels are asked to end their ends (as `ss -K` does there). So an RST goes over the wire, and the
contender hears "connection reset by peer" whether or not it had anything to say; the server's program hears of it from
its own kernel.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import AgentError, UsageError
from nemesis import holding, targets
from nemesis.base import Environment, Started, Stopped
from nemesis.bite import Bite
from nemesis.link import settle
from nemesis.parameters import Parameters
from nemesis.targets import Resolved

GONE_SECONDS = 2.0
"""How long the end of a connection may take to be seen at both ends. An RST takes a tenth of a millisecond."""
LOOK_SECONDS = 0.005
UNABLE = "this kernel can't"
"""What the agent says where the kernel was built without it (nemesis/agent/connections.py)."""
AGAIN_SECONDS = 2.0
"""How long the end of the fault waits to see whether the contender has connected again; for the record alone."""

Tuple4 = tuple[str, int, str, int]


@dataclass
class _Round:
    """One reset of all connections that there were."""

    at_ns: int
    seen: dict[str, list[Tuple4]]
    """Server -> the contender's connections to it, as the contender's node saw them."""
    problems: list[str] = field(default_factory=list)

    @property
    def connections(self) -> int:
        return sum(map(len, self.seen.values()))

    def evidence(self) -> dict[str, Any]:
        shown = {server: [f"{a}:{p} > {b}:{q}" for a, p, b, q in each] for server, each in self.seen.items()}
        return {"at_ns": self.at_ns, "connections": shown, "problems": self.problems}


class Reset:
    """Reset all connections of a contender to the servers, once, or again and again while the fault is on.

    `every`: how often, in s; 0 (the default) is once, at the start. What is connected anew meanwhile lives until then.

    Receipt: the 4-tuples that the contender's node had listed before are in neither node's table afterwards. At the end
    there is nothing to undo; the contender's process is there.
    """

    kind = "reset"
    summary = "reset the connections of a contender to the servers (an RST); it lives on"
    targets: Sequence[str] = targets.CONTENDERS

    def __init__(self, target: str, parameters: Mapping[str, Any]) -> None:
        self.target = targets.check(self.kind, target, self.targets)
        if target and target not in self.targets and not target.startswith("c"):
            raise UsageError(
                f"reset: {target!r} is no contender (it takes {', '.join(self.targets)}, or a name such as c0)"
            )
        taken = Parameters(self.kind, parameters)
        self.every = taken.number("every", 0.0, 0.0, 3600)
        self.seed = taken.whole("seed", 0, 0, 2**63 - 1)
        self.patience = taken.number("patience", 0.0, 0.0, 600)
        taken.done()
        self._hit = Resolved((), ())
        self._rounds: list[_Round] = []
        self._over = threading.Event()
        self._again: threading.Thread | None = None

    @classmethod
    def sensible(cls, target: str, *, system: str, servers: int) -> str | None:
        """Any contender."""
        return targets.sensible(target, servers)

    def start(self, env: Environment) -> Started:
        """Reset them, and see that they are gone. A contender without a connection is waited for."""
        patience = self.patience or targets.patience_of(env)
        hit = targets.resolve(env, self.target, random.Random(f"reset/{self.seed}"), patience=patience)
        if not hit.processes:
            raise UsageError(f"reset: {hit.nodes[0]} is no contender")
        self._hit = hit
        end = time.monotonic() + patience
        while not any((seen := self._connections(env)).values()):
            if time.monotonic() > end:
                reason = f"{hit.nodes[0]} had no connection to any server within {patience:g} s"
                return Started("unproven", hit.nodes, hit.processes, {}, reason)
            time.sleep(LOOK_SECONDS)
        begin_ns, first = self._reset(env, seen)
        evidence = {"begin_ns": begin_ns, "reset": first.evidence(), "every": self.every}
        if any(UNABLE in problem for problem in first.problems):
            return Started("skipped", (), reason=first.problems[0])  # nothing was done to anybody
        if first.problems:
            return Started("unproven", hit.nodes, hit.processes, evidence, "; ".join(first.problems[:5]))
        if self.every > 0:
            self._again = threading.Thread(target=self._keep_on, args=(env,), name="reset", daemon=True)
            self._again.start()
        return Started("landed", hit.nodes, hit.processes, evidence)

    def _connections(self, env: Environment) -> dict[str, list[Tuple4]]:
        """Server -> the contender's established connections to it, by the contender's node."""
        node = self._hit.nodes[0]
        owner = {address: server for server in env.servers for address in env.addresses(server)}
        answer = env.agent(node).call("connections", peers=list(owner), **self._hit.selection(env, node))
        found: dict[str, list[Tuple4]] = {server: [] for server in env.servers}
        for local, port, remote, remote_port in answer["connections"]:
            found[owner[remote]].append((local, port, remote, remote_port))
        return found

    def _reset(self, env: Environment, seen: dict[str, list[Tuple4]]) -> tuple[int, _Round]:
        """End the servers' ends of these, all servers side by side, and look for them at both ends. (began, round)."""
        this = _Round(env.now(), {server: each for server, each in seen.items() if each})
        self._rounds.append(this)
        servers = list(this.seen)
        started = [
            env.agent(server).start("reset", connections=[_other_end(c) for c in this.seen[server]])
            for server in servers
        ]
        answers, errors = settle(started, 6.0)
        this.problems += map(str, errors.values())
        begin_ns = min((answer["begin_ns"] for answer in answers.values()), default=0)
        end = time.monotonic() + (0.0 if errors else GONE_SECONDS)
        while (left := self._left(env, this)) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        this.problems += [f"{where} is still there" for where in left]
        return begin_ns, this

    def _left(self, env: Environment, this: _Round) -> list[str]:
        """Which of these connections are listed at one of their ends still."""
        node = self._hit.nodes[0]
        mine = list(env.addresses(node))
        asked = [env.agent(server).start("connections", peers=mine) for server in this.seen]
        here = self._connections(env)
        answers, errors = settle(asked, 6.0)
        found = [str(error) for error in errors.values()]
        for index, (server, connections) in enumerate(this.seen.items()):
            there = {tuple(each) for each in answers[index]["connections"]} if index in answers else set()
            for each in connections:
                label = f"{each[0]}:{each[1]} > {each[2]}:{each[3]}"
                found += [f"{label} on {node}"] if each in here[server] else []
                found += [f"{label} on {server}"] if _other_end(each) in there else []
        return found

    def _keep_on(self, env: Environment) -> None:
        """Reset what has been connected anew, every so often, until the fault is over."""
        while not self._over.wait(self.every):
            try:
                self._reset(env, self._connections(env))
            except AgentError as error:
                self._rounds.append(_Round(env.now(), {}, [str(error)]))
                return

    def stop(self, env: Environment) -> Stopped:
        """See that the contender is there. What it makes of it all is its own business."""
        self._over.set()
        if self._again is not None:
            self._again.join()
        if not self._hit.nodes:
            return Stopped("undone")
        node = self._hit.nodes[0]
        alive = self._hit.selection(env, node)["pids"]
        there = [r["pid"] for r in env.agent(node).call("processes")["processes"] if r["pid"] in alive]
        end = time.monotonic() + AGAIN_SECONDS
        while not (again := {server: len(each) for server, each in self._connections(env).items() if each}):
            if time.monotonic() > end:
                break
            time.sleep(LOOK_SECONDS)
        later = [each.evidence() for each in self._rounds[1:]]
        evidence = {"processes": there, "connected_again": again, "later": later}
        problems = [problem for each in self._rounds[1:] for problem in each.problems]
        problems += [] if there else [f"the contender on {node} is gone"]
        return Stopped("unproven", evidence, "; ".join(problems[:5])) if problems else Stopped("undone", evidence)

    def bite(self, env: Environment, began_ns: int, ended_ns: int) -> Bite:
        """It held a live lease when a connection of its was reset; a waiter waited, and another held one."""
        node = self._hit.nodes[0]
        evidence: dict[str, Any] = {"rounds": [{"at_ns": e.at_ns, "connections": e.connections} for e in self._rounds]}
        held = waited = 0
        for each in self._rounds:
            live = [h for h in env.holds(each.at_ns) if h.promise_end_ns is None or h.promise_end_ns > each.at_ns]
            if each.connections:
                held += any(hold.node == node for hold in live)
                waited += env.wait_of(node, each.at_ns) is not None and any(hold.node != node for hold in live)
        evidence |= {"while_holding": held, "while_waiting": waited}
        total = sum(each.connections for each in self._rounds)
        times = "once" if len(self._rounds) == 1 else f"{len(self._rounds)} times"
        if self.target == "holder" and not held:
            reason = f"{node} held no live lease when its connections were reset ({times})"
            return Bite(False, reason, evidence, holding.HOLD_ON)
        if not held and not waited:
            reason = f"{node} neither held a lease nor waited for one when its connections were reset ({times})"
            return Bite(False, reason, evidence, "reset again and again (fault_options.every)")
        what = "held a live lease" if held else "waited for the lock, which another held,"
        lost = "a connection of its was reset" if total == 1 else f"{total} connections of its were reset"
        return Bite(True, f"{node} {what} when {lost} ({times})", evidence)


def _other_end(connection: Tuple4) -> Tuple4:
    """The same connection as its other end sees it."""
    local, port, remote, remote_port = connection
    return remote, remote_port, local, port

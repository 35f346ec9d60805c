"""What operators do: stop, restart, fail over. In what order it is done, and what it takes for a receipt and a bite."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.errors import AgentError, UsageError
from harness.systems.base import Leadership, LeaseTerms
from nemesis import failover, faults
from tests.nemesis.test_striking import TERMS, Told, hold, strike

S = 1_000_000_000
PROCESS = {"pid": 7, "comm": "etcd", "started": 70, "role": "service", "service": None, "state": "S"}
AGAIN = {**PROCESS, "pid": 8, "started": 90}


@dataclass
class Operated(Told):
    """A trial in which servers are told to end, and leadership can be handed over."""

    says: dict[str, Any] = field(
        default_factory=lambda: {
            node: {
                "stop": {"processes": [PROCESS], "begin_ns": 1},
                "processes": {"processes": [AGAIN]},
                "probe": {"results": ["connected"]},
            }
            for node in ("n1", "n2", "n3")
        }
    )
    orders: list[str] = field(default_factory=list)
    refuses: str | None = None

    def hand_over(self, leader: str) -> str:
        self.orders.append(leader)
        if self.refuses:
            raise AgentError(self.refuses)
        return f"away from {leader}"

    def told(self) -> list[tuple[str, str]]:
        """Which agents were told to end something, in order, and with what else."""
        return [(node, op) for node, agent in self.agents.items() for op, _ in agent.asked if op in ("stop", "kill")]


def test_a_server_is_told_to_end_with_the_time_that_it_may_take() -> None:
    """SIGTERM, not SIGKILL; started again at the end, and as long away as a killed one."""
    env = Operated(led=[Leadership("n1", {}, 4), Leadership("n2", {}, 5)])
    fault: Any = faults.make("stop", "leader", {"grace": 3.5})
    assert fault.stands_seconds(env, 1, 4.0) == 4.0, "the first is a long one"
    assert strike(fault, env, 10, 14).bit is True
    assert env.told() == [("n1", "stop")]
    assert dict(env.agents["n1"].asked)["stop"] == {"timeout": 3.5}
    assert env.restarted == ["n1"]


@pytest.mark.parametrize(("survives", "bit"), [(True, False), (False, True), (None, True)])
def test_what_outlives_a_stop_may_not_outlive_a_kill(survives: bool | None, bit: bool) -> None:
    """A server that writes what it has before it ends loses nothing; where nobody says so, a stop is as a kill."""
    terms = {**TERMS.__dict__, "survives_kill": False, "survives_stop": survives, "survives_stop_reason": "it syncs"}
    env = Operated(lease=LeaseTerms(**terms), held=[hold("c0", 9.0, None, promise_end_ns=13 * S)], clock=11 * S)
    fault: Any = faults.make("stop", "leader", {"down": "short"})
    fault.stands_seconds(env, 1, 4.0)
    assert strike(fault, env, 10, 11).bit is bit


def test_a_rolling_restart_waits_for_one_before_the_next() -> None:
    """Each is back before the next is told to end, the last one at the end; nobody is away for long."""
    env = Operated()
    fault: Any = faults.make("restart", "all", {})
    assert fault.stands_seconds(env, 1, 4.0) == 0.0
    started = fault.start(env)
    assert (started.receipt, started.targets) == ("landed", ("n1", "n2", "n3"))
    assert env.restarted == ["n1", "n2"]
    assert list(started.evidence["restarted"]) == ["n1", "n2"]
    assert fault.stop(env).receipt == "undone"
    assert env.restarted == ["n1", "n2", "n3"]
    assert env.told() == [("n1", "stop"), ("n2", "stop"), ("n3", "stop")]


def test_a_server_that_does_not_come_back_ends_a_rolling_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is not told to end then: an operator would stop there, too."""
    monkeypatch.setattr("nemesis.kill.BACK_SECONDS", 0.0)
    env = Operated()
    env.says["n1"]["processes"] = {"processes": [PROCESS]}
    fault: Any = faults.make("restart", "all", {})
    started = fault.start(env)
    assert started.receipt == "unproven"
    assert "n1: no process of the service" in started.reason
    assert env.told() == [("n1", "stop")]


@pytest.mark.parametrize(
    ("kind", "target", "parameters", "words"),
    [
        ("stop", "holder", {}, "stop takes no target 'holder'"),
        ("stop", "c0", {}, "stop means a service: .* beside a contender"),
        ("restart", "leader", {"down": "long"}, "with 'down' it is a stop"),
        ("stop", "leader", {"grace": 0}, "'grace' must be a number from 0.1 to 600"),
        ("failover", "", {"to": "n2"}, "failover: unknown parameter 'to'"),
    ],
)
def test_what_makes_no_sense_is_told(kind: str, target: str, parameters: dict[str, Any], words: str) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match=words):
        faults.make(kind, target, parameters)


@pytest.mark.parametrize(
    ("system", "servers", "why"),
    [
        ("etcd", 3, None),
        ("redis-sentinel", 3, None),
        ("zookeeper", 3, "zookeeper takes no order that another server lead"),
        ("redis", 1, "redis takes no order that another server lead"),
    ],
)
def test_a_failover_takes_a_system_that_has_one(system: str, servers: int, why: str | None) -> None:
    """A rule, as for any cell that makes no sense."""
    assert faults.parse("failover") == ("failover", "")
    assert faults.why_not("failover", "", system=system, servers=servers) == why


def test_a_failover_landed_when_another_leads() -> None:
    """As the servers say, and not the order's own answer; leadership that moved is all that it takes to bite."""
    env = Operated(
        led=[Leadership("n1", {}, 4), Leadership("n1", {}, 4), Leadership("n1", {}, 4), Leadership("n3", {}, 5)]
    )
    fault: Any = faults.make("failover", "", {"seed": 3})
    assert fault.stands_seconds(env, 1, 4.0) == env.lease.ttl_seconds
    bite = strike(fault, env, 10, 12)
    assert env.orders == ["n1"]
    assert bite.bit is True
    assert "leadership moved from n1 to n3" in bite.reason


def test_a_failover_that_began_with_nobody_known_to_lead_has_moved_nobody_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look right before the order had no answer: the one that was told to hand over is still no other one."""
    monkeypatch.setattr(failover, "MOVED_SECONDS", 0.0)
    env = Operated(led=[Leadership(None, {}), Leadership("n1", {}, 4)])
    monkeypatch.setattr(env, "leader", lambda: "n1")
    started = faults.make("failover", "", {}).start(env)
    assert (started.receipt, started.reason.partition("taken")[2]) == ("unproven", ", but n1 leads 0 s later")


@pytest.mark.parametrize(
    ("refuses", "reason"),
    [("no good replica", "the order was not taken: no good replica"), (None, "taken, but n1 leads 0 s later")],
)
def test_a_failover_that_moves_nobody_is_unproven(
    refuses: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the order is refused, or taken and the same one leads, be it after an election; and there is nothing to
    undo.
    """
    monkeypatch.setattr(failover, "MOVED_SECONDS", 0.0)
    env = Operated(refuses=refuses, led=[Leadership("n1", {}, 4), Leadership("n1", {}, 4), Leadership("n1", {}, 5)])
    fault: Any = faults.make("failover", "", {})
    started = fault.start(env)
    assert started.receipt == "unproven"
    assert reason in started.reason
    assert fault.stop(env).receipt == "undone"

"""What operators do: stop, restart, fail over. In what order it is done, and what it takes for a receipt and a bite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.errors import AgentError, ConfigError, UsageError
from harness.runtime.base import ServiceSpec
from harness.systems.base import Leadership, LeaseTerms
from harness.systems.etcd import Etcd
from harness.systems.operating import Held, Joining
from harness.systems.restoring import Snapshot
from harness.trial.config import TrialConfig, resolve
from nemesis import failover, faults, reconfigure
from nemesis.targets import NoTarget
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
    owners: list[Held | None] = field(default_factory=list)
    """Who holds the lock by the service's word, each time that it is asked; the last one for ever."""

    among: set[str] = field(default_factory=lambda: {"n1", "n2", "n3"})
    """The members, as the others list them."""
    lists_again: bool = False
    """Whether an agent lists another process once a service was started again."""
    stays: bool = False
    """Whether one that is taken out is listed all the same."""

    def members(self, but: Collection[str] = ()) -> Sequence[str]:
        return sorted(self.among)

    def leave(self, node: str) -> str:
        if self.refuses:
            raise AgentError(self.refuses)
        self.orders.append(f"leave {node}")
        self.among -= set() if self.stays else {node}
        return self.orders[-1]

    def admit(self, node: str) -> Joining:
        self.orders.append(f"add {node}")
        return Joining(self.orders[-1], None, keep_data=False)

    def admitted(self, node: str) -> str:
        self.among.add(node)
        return "voted"

    def restart_service(self, node: str, *, keep_data: bool, service: str | None = None, spec: Any = None) -> None:
        super().restart_service(node, keep_data=keep_data, service=service)
        if self.lists_again:
            self.agents[node].says["processes"] = {"processes": [AGAIN]}

    def owned(self) -> Held | None:
        return self.owners.pop(0) if len(self.owners) > 1 else self.owners[0]

    def unlock(self, held: Held, way: str | None) -> str:
        self.orders.append(f"{way} {held.key} {held.owner}")
        if self.refuses:
            raise AgentError(self.refuses)
        return f"del {held.key}"

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
        ("unlock", "c0", {}, "unlock takes the lock from whoever holds it"),
        ("unlock", "leader", {}, "unlock takes no target 'leader'"),
        ("unlock", "holder", {"by": 3}, "'by' must be what is taken away, a word, not 3"),
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


MINE, OTHER = Held("lock/1", "lease 1", 7), Held("lock/2", "lease 2", 8)


def unlocked(owners: list[Held | None], end: float | None = 12.0, **more: Any) -> tuple[Any, Operated]:
    """(fault, env): c0 believes that it holds token 7, at 10.5 s."""
    env = Operated(owners=owners, held=[hold("c0", 9.0, end)], clock=int(10.5 * S), **more)
    return faults.make("unlock", "holder", {"by": "lease", "patience": 0.01}), env


def test_a_lock_was_taken_away_when_the_service_names_another_owner() -> None:
    """The receipt says what was deleted, whose it was, and when; it bit inside the promise alone."""
    fault, env = unlocked([MINE, OTHER])
    bite = strike(fault, env, 10.5, 12.5)
    assert env.orders == ["lease lock/1 lease 1"]
    assert bite.reason == "the lock was taken from c0 1.50 s before its lease could have run out"
    fault, env = unlocked([MINE, None], end=10.1)
    assert strike(fault, env, 10.5, 12.5).bit is False, "its lease had run out by itself"
    fault, env = unlocked([MINE, OTHER])
    started = fault.start(env)
    told = started.evidence
    assert (told["key"], told["owner"], told["token"], told["from"]) == ("lock/1", "lease 1", 7, "c0")
    assert (told["removed_ns"], told["order"]) == (env.clock, "del lock/1")
    assert started.processes == (0,)
    assert "an operator took lock/1 from c0 (owner lease 1, token 7)" in started.reason


@pytest.mark.parametrize(
    ("owners", "refuses", "receipt", "words"),
    [
        ([MINE, MINE], None, "unproven", "answered, and lock/1 is lease 1's as before"),
        ([MINE], "it was gone already", "unproven", "the order was not taken: it was gone already"),
    ],
)
def test_a_lock_that_stays_was_not_taken_away(
    owners: list[Held | None], refuses: str | None, receipt: str, words: str
) -> None:
    """Whatever the order was answered; nothing is undone then, and nothing is believed to have come back."""
    fault, env = unlocked(owners, refuses=refuses)
    started = fault.start(env)
    assert started.receipt == receipt
    assert words in started.reason
    assert fault.stop(env).receipt == "undone"


@pytest.mark.parametrize(("owner", "words"), [(OTHER, "lease 2 holds it, with token 8"), (None, "nobody holds it")])
def test_nobody_s_lock_is_taken_away_but_the_holder_s(owner: Held | None, words: str) -> None:
    """Where the service holds it for another, or under a name that isn't ours, nothing is done to anybody."""
    fault, env = unlocked([owner])
    with pytest.raises(NoTarget, match=f"c0 believes that it holds the lock, with token 7; the service: {words}"):
        fault.start(env)
    assert env.orders == []


def test_a_lock_that_comes_back_is_told() -> None:
    """A service that remembers an owner whose key was deleted."""
    fault, env = unlocked([MINE, OTHER, MINE])
    assert fault.start(env).receipt == "landed"
    assert fault.stop(env).reason == "lock/1 is lease 1's again"


def test_what_is_taken_away_is_named_in_the_system_s_words() -> None:
    """Before anything starts."""
    assert faults.make("unlock", "holder", {"by": "lease"}).unfit(Etcd()) is None  # type: ignore[attr-defined]
    told = faults.make("unlock", "holder", {"by": "session"}).unfit(Etcd())  # type: ignore[attr-defined]
    assert told == "unlock: parameter 'by' must be one of key, lease on etcd, not 'session'"


def membered(processes: list[dict[str, Any]], **more: Any) -> tuple[Any, Operated]:
    """(fault, env): the leader, n1, is to be taken out; what its agent lists, in turn."""
    env = Operated(led=[Leadership("n1", {}, 4), Leadership("n2", {}, 5)], lists_again=True, **more)
    env.says["n1"]["processes"] = [{"processes": each} for each in processes]
    return faults.make("reconfigure", "leader", {}), env


def test_a_member_is_out_when_the_others_say_so_and_its_processes_are_gone() -> None:
    """By itself, or told to end; it is back when they list it again and another process takes clients."""
    fault, env = membered([[PROCESS], []])
    assert strike(fault, env, 10, 14).bit is True
    assert env.orders == ["leave n1", "add n1"]
    assert (env.told(), env.restarted, env.among) == ([], ["n1"], {"n1", "n2", "n3"})


def test_a_member_that_does_not_end_by_itself_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper's go on without a vote."""
    monkeypatch.setattr(reconfigure, "ENDS_SECONDS", -1.0)
    fault, env = membered([[PROCESS], [PROCESS], []])
    started = fault.start(env)
    assert (started.receipt, started.evidence["ended"]) == ("landed", "told to (SIGTERM)")
    assert env.told() == [("n1", "stop")]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"refuses": "unhealthy cluster"}, "was not taken out: refused for -1 s, at last with: unhealthy cluster"),
        ({"stays": True}, "at last with: n1 is still listed as a member"),
    ],
)
def test_a_member_that_stays_is_unproven(more: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused to the end, or taken and nothing came of it. Where nothing was done nothing is started again."""
    monkeypatch.setattr(reconfigure, "INSIST_SECONDS", -1.0)
    fault, env = membered([[PROCESS]], **more)
    started = fault.start(env)
    assert started.receipt == "unproven"
    assert words in started.reason
    assert fault.stop(env).receipt == "undone"
    assert env.restarted == ([] if "refuses" in more else ["n1"])


def test_no_more_than_one_is_taken_out_at_a_time() -> None:
    """A cluster that lacks a member already is left alone."""
    fault, env = membered([[PROCESS]], among={"n1", "n3"})
    with pytest.raises(NoTarget, match="n2 is no member"):
        fault.start(env)


@pytest.mark.parametrize(
    ("system", "servers", "why"),
    [
        ("zookeeper", 3, None),
        ("redis", 1, "redis has no members that leave and join again"),
        ("redis-sentinel", 3, "Sentinels find replicas and each other by themselves, and forget nobody"),
    ],
)
def test_a_reconfiguration_takes_a_system_with_members(system: str, servers: int, why: str | None) -> None:
    """Else the cell is left out, in the system's own words where it has some."""
    told = faults.why_not("reconfigure", "follower", system=system, servers=servers)
    assert (told is None) == (why is None)
    assert why is None or why in (told or "")


@dataclass
class Upgraded(Operated):
    """A trial on an older etcd, whose servers say of which version they are by the image that they run in."""

    system: str = "etcd"
    ran: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("n1", "n2", "n3"), "etcd-3.4.23"))
    stubborn: str = ""
    """The server that stays what it was."""
    ends: str = ""
    """The one that ends again."""
    well: list[bool] = field(default_factory=lambda: [True])

    def healthy(self) -> tuple[bool, str]:
        return (self.well.pop(0) if len(self.well) > 1 else self.well[0]), "n3: no leader"

    def version(self, node: str) -> str:
        return "3.4.23" if node == self.stubborn or self.ran[node] == "etcd-3.4.23" else "3.5.16"

    def image(self, node: str, service: str) -> str:
        return self.ran[node]

    def restart_service(
        self, node: str, *, keep_data: bool, service: str | None = None, spec: Any = None, image: str | None = None
    ) -> None:
        assert keep_data
        super().restart_service(node, keep_data=keep_data, service=service)
        self.ran[node] = image or self.ran[node]
        if node == self.ends:
            self.agents[node].says["processes"] = {"processes": []}


@pytest.mark.parametrize(
    ("order", "nodes"), [("leader-last", ["n2", "n3", "n1"]), ("leader-first", ["n1", "n2", "n3"])]
)
def test_an_upgrade_goes_from_one_to_the_next(order: str, nodes: list[str]) -> None:
    """Each is told to end when the one before it is of the new version, and the cluster well; once in a trial."""
    env = Upgraded(well=[True, False, False, True])
    fault: Any = faults.make("upgrade", "all", {"order": order})
    assert fault.stands_seconds(env, 1, 4.0) == 0.0
    started = fault.start(env)
    assert (started.receipt, env.restarted) == ("landed", nodes)
    assert set(env.ran.values()) == {"etcd"}
    assert [(each["was"], each["is"]) for each in started.evidence["upgraded"].values()] == [("3.4.23", "3.5.16")] * 3
    stopped = fault.stop(env)
    assert (stopped.receipt, env.restarted) == ("undone", nodes)
    assert stopped.reason.startswith("nothing is undone: n1 is of version 3.5.16")
    again = faults.make("upgrade", "all", {}).start(env)
    assert (again.receipt, again.reason) == (
        "skipped",
        "all servers are of version 3.5.16 already, and a trial upgrades once",
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"stubborn": "n2"}, "n2: it says that it is of version 3.4.23, as before"),
        ({"well": [False]}, "n2: the cluster was not well 0 s after it was started again; seen last: n3: no leader"),
        ({"ends": "n2"}, "n2: no process of the service"),
    ],
)
def test_an_upgrade_that_fails_goes_no_further(
    more: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator would stop there, too; what was left in the middle is started again at the end."""
    monkeypatch.setattr("nemesis.kill.BACK_SECONDS", 0.0)
    monkeypatch.setattr("nemesis.upgrade.WELL_SECONDS", 0.0)
    env = Upgraded(**more)
    fault: Any = faults.make("upgrade", "all", {})
    started = fault.start(env)
    assert (started.receipt, env.told()) == ("unproven", [("n2", "stop")])
    assert started.reason.startswith(words)
    assert fault.stop(env).evidence["now"]["n1"] == "3.4.23"
    assert env.restarted == ["n2"]
    again = faults.make("upgrade", "all", {}).start(env)
    assert again.reason == "an upgrade was given up after n2, and a trial upgrades once"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"to": 3.5}, r"'to' must be a version in quotes, such as '3.5.16', not 3.5"),
        ({"service": "etcd"}, "no parameter 'service': all services of a server move"),
        ({"keep_data": False}, "no parameter 'keep_data': the data stays where it is"),
        ({"order": "any"}, "'order' must be one of leader-last, leader-first"),
    ],
)
def test_what_an_upgrade_is_not(parameters: dict[str, Any], words: str) -> None:
    """In words, before anything starts."""
    with pytest.raises(UsageError, match=words):
        faults.make("upgrade", "all", parameters)


def test_an_upgrade_needs_two_versions() -> None:
    """Of a system with a recipe for one there is nothing to move to; and not to that with which it starts."""
    assert faults.why_not("upgrade", "all", system="etcd", servers=3) is None
    assert "has a recipe for but one version" in (faults.why_not("upgrade", "all", system="consul", servers=3) or "")
    made = resolve(TrialConfig(system="etcd", fault="upgrade-all", version="3.4.23"))
    assert made.images_needed()[:2] == ["etcd-3.4.23", "etcd"]
    with pytest.raises(ConfigError, match="etcd starts with that version; ask for another one"):
        resolve(TrialConfig(system="etcd", fault="upgrade-all"))
    with pytest.raises(ConfigError, match=r"etcd has no recipe for version '3\.9' \(it has: 3\.5\.16, 3\.4\.23\)"):
        resolve(TrialConfig(system="etcd", fault="upgrade-all", fault_options={"to": "3.9"}))


@dataclass
class Restored(Operated):
    """A trial on a service that takes snapshots: what is written since one is gone once it is put back."""

    restores_running: bool = False
    kept: dict[str, str] = field(default_factory=dict)
    keeps: bool = False
    """Whether what was written stays all the same."""
    fails: str = ""
    """What goes wrong: "snapshot", "restore" or "start"."""
    well: list[bool] = field(default_factory=lambda: [True])

    def _fail(self, what: str) -> None:
        if self.fails == what:
            raise AgentError(f"{what} was refused")

    def healthy(self) -> tuple[bool, str]:
        return (self.well.pop(0) if len(self.well) > 1 else self.well[0]), "n3: no leader"

    def snapshot(self) -> Snapshot:
        self._fail("snapshot")
        return Snapshot("snapshot save", b"abc")

    def restored_from(self, snapshot: Snapshot) -> dict[str, Sequence[ServiceSpec]]:
        return {
            node: (ServiceSpec(image="etcd", command=("restore",)), ServiceSpec(image="etcd")) for node in self.says
        }

    def restart_from(self, node: str, specs: Sequence[ServiceSpec]) -> None:
        self._fail("start")
        self.orders.append(f"{node} from {len(specs)}")

    def restore(self, snapshot: Snapshot) -> str:
        self._fail("restore")
        self.orders.append("restore")
        self.kept = self.kept if self.keeps else {}
        return "snapshot restore"

    def put(self, key: str, value: str) -> None:
        self.kept[key] = value

    def get(self, key: str) -> str | None:
        return self.kept.get(key)


def restoring(env: Restored, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Restore, and what came of it."""
    monkeypatch.setattr("nemesis.restore.WELL_SECONDS", 0.0)
    for agent in env.says.values():
        agent["kill"] = agent["stop"]
    fault: Any = faults.make("restore", "", {"age": 0.01})
    assert fault.stands_seconds(env, 1, 4.0) == 0.0
    return fault, fault.start(env)


@pytest.mark.parametrize("running", [False, True])
def test_a_snapshot_is_back_when_what_was_written_since_is_gone(running: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the servers run, or after all of them were killed and started from it."""
    env = Restored(restores_running=running, well=[True])
    fault, started = restoring(env, monkeypatch)
    assert (started.receipt, started.reason) == ("landed", None)
    assert started.evidence["bytes"] == 3
    assert env.told() == ([] if running else [("n1", "kill"), ("n2", "kill"), ("n3", "kill")])
    starts = [] if running else ["n1 from 2", "n2 from 2", "n3 from 2"]
    assert (sorted(env.orders[:-1]), env.orders[-1]) == (starts, "restore")
    assert (fault.stop(env).receipt, env.restarted) == ("undone", [])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"fails": "snapshot"}, "no snapshot could be taken: snapshot was refused"),
        ({"fails": "start"}, "the snapshot was not put back: start was refused"),
        ({"fails": "restore"}, "the snapshot was not put back: restore was refused"),
        ({"keeps": True}, "not put back: what was written after the snapshot is there still"),
        ({"well": [False]}, "not put back: the service was not well 0 s later; seen last: n3: no leader"),
    ],
)
def test_a_snapshot_that_is_not_back_is_unproven(
    more: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong on the way is told."""
    _, started = restoring(Restored(**more), monkeypatch)
    assert started.receipt == "unproven"
    assert words in started.reason


def test_servers_that_were_killed_and_not_started_are_started_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial goes on, with what they had."""
    monkeypatch.setattr("nemesis.kill.BACK_SECONDS", 0.0)
    env = Restored(fails="start")
    for agent in env.says.values():
        agent["processes"] = {"processes": []}
    fault, _ = restoring(env, monkeypatch)
    assert fault.stop(env).receipt == "unproven"
    assert sorted(env.restarted) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(("since", "bit"), [(2, True), (10, False)])
def test_a_snapshot_bit_when_a_grant_was_forgotten(since: int, bit: bool) -> None:
    """Nothing is lost where nobody was granted anything since."""
    env = Restored(held=[hold("c0", 3.0, None, promise_end_ns=13 * S)], clock=2 * S)
    fault: Any = faults.make("restore", "", {})
    fault._since_ns = since * S
    fault._leading.before(env)
    found = fault.bite(env, 11 * S, 12 * S)
    assert found.bit is bit
    assert ("1 grant was forgotten" if bit else "nothing was forgotten") in found.reason


@pytest.mark.parametrize(
    ("system", "why"),
    [
        ("etcd", None),
        ("consul", None),
        ("redis", None),
        ("redis-sentinel", "redis-sentinel: a replica is overwritten by whoever is the primary then"),
        ("zookeeper", "zookeeper: a snapshot is put back by its admin server"),
    ],
)
def test_a_restore_takes_a_system_with_snapshots(system: str, why: str | None) -> None:
    """The others say why not, in their own words."""
    said = faults.why_not("restore", "", system=system, servers=3)
    assert said is why if why is None else said is not None and said.startswith(why)

"""The faults on a small trial: what they claim in their receipts is checked by other means."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nemesis import faults
from nemesis.base import Bites
from nemesis.bite import SeenHold, SeenWait
from nemesis.targets import NoTarget
from tests.nemesis.environment import SmallTrial
from tests.nemesis.nodes import lan, until, why_not


@pytest.fixture(scope="module")
def trial() -> Iterator[SmallTrial]:
    """Three servers, two contenders, a resource."""
    if reason := why_not():
        pytest.skip(reason)
    with lan("n1", "n2", "n3", "c0", "c1", "resource") as nodes:
        small = SmallTrial(nodes)
        try:
            yield small
        finally:
            small.close()


@pytest.fixture
def env(trial: SmallTrial) -> Iterator[SmallTrial]:
    """The trial, with n1 leading and c0 holding; clean again after the test."""
    trial.leads, trial.holds = "n1", "c0"
    trial.seen, trial.waiting = {}, {"c1": SeenWait(1, 0, None, None)}
    yield trial
    for name, link in trial.links.items():
        assert link.call("verify_clean") == {"clean": True, "left": []}, name


def links(env: SmallTrial, family: int) -> set[str]:
    """Which pairs can't talk, of all nodes, in one family: "n1-n2"."""
    pairs = list(itertools.combinations([*env.servers, *env.contenders, "resource"], 2))
    with ThreadPoolExecutor(len(pairs)) as pool:
        works = list(pool.map(lambda pair: env.works(*pair, family), pairs))
    return {f"{a}-{b}" for (a, b), fine in zip(pairs, works, strict=True) if not fine}


# -- partition ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "parameters", "cut"),
    [
        ("leader", {}, {"n1-n2", "n1-n3"}),
        ("n3", {}, {"n1-n3", "n2-n3"}),
        ("leader", {"contenders": "majority"}, {"n1-n2", "n1-n3", "n1-c0", "n1-c1"}),
        (
            "leader",
            {"contenders": "minority"},
            {"n1-n2", "n1-n3", "n2-c0", "n3-c0", "n2-c1", "n3-c1"},
        ),
        ("leader", {"topology": "bridge"}, {"n2-n3"}),
        ("holder", {}, {"n1-c0", "n2-c0", "n3-c0"}),
        ("waiter", {}, {"n1-c1", "n2-c1", "n3-c1"}),
        ("holder", {"away_from": "leader"}, {"n1-c0"}),
        ("holder", {"away_from": "contenders"}, {"c0-c1"}),
        ("holder", {"keep_resource": False}, {"n1-c0", "n2-c0", "n3-c0", "c0-resource"}),
    ],
    ids=lambda value: (
        ",".join(sorted(map(str, value.items() if isinstance(value, dict) else value)))
        if isinstance(value, (dict, set))
        else str(value)
    ),
)
def test_partition_cuts_just_these_links(
    env: SmallTrial, target: str, parameters: dict[str, Any], cut: set[str]
) -> None:
    """Just the links that it should are cut, in both families, and all work again when it is undone."""
    fault = faults.make("partition", target, {"resource_port": 1, **parameters})
    started = fault.start(env)
    assert started.receipt == "landed", started
    assert links(env, 0) == cut
    assert links(env, 1) == cut
    stopped = fault.stop(env)
    assert stopped.receipt == "undone", stopped
    assert stopped.reason is None
    assert links(env, 0) == links(env, 1) == set()


def test_partition_says_whether_progress_is_expected(env: SmallTrial) -> None:
    """With the leader cut off the others go on; the evidence says so and who can lead."""
    fault = faults.make("partition", "leader", {"resource_port": 1})
    started = fault.start(env)
    assert started.evidence["expected"]["progress"] is True
    assert started.evidence["expected"]["leaders"] == ("n2", "n3")
    assert started.targets == ("n1",)
    assert started.processes == ()
    fault.stop(env)


def test_partition_of_the_holder_names_the_process(env: SmallTrial) -> None:
    """A fault on a contender lists its number in the history."""
    env.holds = "c1"
    fault = faults.make("partition", "holder", {"resource_port": 1})
    started = fault.start(env)
    assert (started.receipt, started.targets, started.processes) == ("landed", ("c1",), (1,))
    assert started.evidence["after"]["c1>resource IPv4"] == "refused"
    fault.stop(env)


@pytest.mark.parametrize(("direction", "dead", "alive"), [("in", "n2>n1", "n1>n2"), ("out", "n1>n2", "n2>n1")])
def test_partition_in_one_direction(env: SmallTrial, direction: str, dead: str, alive: str) -> None:
    """One way is cut and the other is not, told apart by datagrams."""
    fault = faults.make("partition", "leader", {"direction": direction})
    started = fault.start(env)
    assert started.receipt == "landed", started
    assert started.evidence["datagrams"][dead] is False
    assert started.evidence["datagrams"][alive] is True
    assert fault.stop(env).receipt == "undone"


def test_partition_that_does_not_cut_is_unproven(env: SmallTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that are gone as soon as they were set give no receipt, whatever the call that set them said."""

    def sabotage(name: str, start: Any) -> Any:
        def then_flush(op: str, **arguments: Any) -> Any:
            handle = start(op, **arguments)
            if op == "cut":
                handle.result(5)
                env.nodes[name].shell("iptables -F FENCEPOST-IN")
            return handle

        return then_flush

    for name, link in env.links.items():
        monkeypatch.setattr(link, "start", sabotage(name, link.start))
    fault = faults.make("partition", "leader", {})
    started = fault.start(env)
    assert started.receipt == "unproven"
    assert "n1>n2 IPv4 connected, though it was cut" in str(started.reason)
    stopped = fault.stop(env)
    assert stopped.receipt == "undone"
    assert stopped.reason == "the rules on n1, n2, n3 had gone before"


def test_partition_on_a_dead_link_is_unproven(env: SmallTrial) -> None:
    """A link that did not work before proves nothing by not working afterwards."""
    env.nodes["n2"].shell("iptables -A INPUT -s 10.77.0.1 -j DROP")
    fault = faults.make("partition", "leader", {"probe_timeout": 0.1})
    started = fault.start(env)
    assert started.receipt == "unproven"
    assert "did not work before it was cut" in str(started.reason)
    env.nodes["n2"].shell("iptables -D INPUT -s 10.77.0.1 -j DROP")
    assert fault.stop(env).receipt == "undone"


def test_partition_whose_undo_does_not_reach_is_unproven(env: SmallTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that stay dead after the rules are gone are told."""
    monkeypatch.setattr("nemesis.partition.RECONNECT_SECONDS", 0.3)
    fault = faults.make("partition", "leader", {"probe_timeout": 0.1})
    assert fault.start(env).receipt == "landed"
    env.nodes["n2"].shell("iptables -A INPUT -s 10.77.0.1 -j DROP")
    stopped = fault.stop(env)
    assert stopped.receipt == "unproven"
    assert "though it was mended" in str(stopped.reason)
    env.nodes["n2"].shell("iptables -D INPUT -s 10.77.0.1 -j DROP")


# -- freeze, kill, clock ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "nodes", "processes"), [("leader", ("n1",), ()), ("all", ("n1", "n2", "n3"), ())])
def test_freeze_of_servers(env: SmallTrial, target: str, nodes: tuple[str, ...], processes: tuple[int, ...]) -> None:
    """All threads of the service are stopped on just the nodes meant."""
    fault = faults.make("freeze", target, {})
    started = fault.start(env)
    assert (started.receipt, started.targets, started.processes) == ("landed", nodes, processes)
    for server in env.servers:
        threads = {row["threads"] for row in env.processes(server)}
        assert (threads == {"T"}) if server in nodes else ("T" not in "".join(map(str, threads)))
    assert fault.stop(env).receipt == "undone"
    assert "T" not in "".join(str(row["threads"]) for server in env.servers for row in env.processes(server))


def test_freeze_of_the_holder(env: SmallTrial) -> None:
    """The contender that holds is frozen."""
    fault = faults.make("freeze", "holder", {})
    started = fault.start(env)
    assert (started.receipt, started.targets, started.processes) == ("landed", ("c0",), (0,))
    pid = env.contender_pids("c0")[0]
    rows = {row["pid"]: row["threads"] for row in env.links["c0"].call("processes")["processes"]}
    assert rows[pid] == "T"
    assert fault.stop(env).receipt == "undone"


@pytest.mark.parametrize("kind", ["freeze", "partition"])
def test_whoever_said_that_it_holds_until_told_is_hit_and_nobody_else(
    env: SmallTrial, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Where contenders can be told, the fault never comes to one that has not said so; then it is skipped."""
    monkeypatch.setattr(env, "holds_until_told", True)
    monkeypatch.setattr(env, "wait_until_told", lambda timeout_seconds: "c1")
    fault = faults.make(kind, "holder", {"resource_port": 1} if kind == "partition" else {})
    started = fault.start(env)
    assert (started.receipt, started.targets, started.processes) == ("landed", ("c1",), (1,))
    assert fault.stop(env).receipt == "undone"
    monkeypatch.setattr(env, "wait_until_told", lambda timeout_seconds: None)
    fault = faults.make(kind, "holder", {"patience": 0.1})
    with pytest.raises(NoTarget, match=r"nobody held the lock and said within 0\.1 s that it would go on holding"):
        fault.start(env)
    assert fault.stop(env).receipt == "undone"


def test_a_frozen_holder_bites_when_its_lease_runs_out_and_misses_when_somebody_woke_it(env: SmallTrial) -> None:
    """From what the history says of its hold, and from the state of its processes."""
    fault = faults.make("freeze", "holder", {})
    began = now = fault.start(env).evidence["frozen"]["c0"]["begin_ns"]
    env.seen["c0"] = SeenHold("c0", 0, 7, now - 1_000, now + 1_000, True, None, None, None)
    ended = fault.stop(env).evidence["thawed"]["c0"]["end_ns"]
    assert isinstance(fault, Bites)
    bite = fault.bite(env, began - 1, max(ended, now + 2_000_000))
    assert bite is not None
    assert bite.bit is True
    woken = faults.make("freeze", "holder", {})
    woken.start(env)
    pid = env.nodes["c0"].outer(env.contender_pids("c0")[0])
    os.kill(pid, signal.SIGCONT)
    until(lambda: "State:\tT" not in Path(f"/proc/{pid}/status").read_text(), "the contender awake")
    woken.stop(env)
    assert isinstance(woken, Bites)
    bite = woken.bite(env, began - 1, max(ended, now + 2_000_000))
    assert bite is not None
    assert bite.bit is False
    assert "somebody else had let c0 go on before" in bite.reason


def test_freeze_of_a_dead_service_is_unproven(env: SmallTrial) -> None:
    """A fault that found nothing to hit says so, and its undo is still fine."""
    env.links["n1"].call("kill")
    fault = faults.make("freeze", "leader", {})
    started = fault.start(env)
    assert started.receipt == "unproven"
    assert "no process of the service runs" in str(started.reason)
    assert fault.stop(env).receipt == "undone"
    env.restart_service("n1", keep_data=True)


def test_kill_and_restart(env: SmallTrial) -> None:
    """After a kill nothing of the service is there; at its end there are processes that none of the old ones is."""
    before = {(row["pid"], row["started"]) for row in env.processes("n1")}
    fault = faults.make("kill", "leader", {"keep_data": False})
    started = fault.start(env)
    assert (started.receipt, started.targets) == ("landed", ("n1",))
    assert env.processes("n1") == []
    env.restarted.clear()
    stopped = fault.stop(env)
    assert stopped.receipt == "undone", stopped
    assert env.restarted == [("n1", False)]
    assert before.isdisjoint({(row["pid"], row["started"]) for row in env.processes("n1")})


def test_a_server_that_is_lost_stays_lost(env: SmallTrial) -> None:
    """Nothing of it runs, and nobody starts it again; a second one is not lost, and one that came back is told."""
    fault = faults.make("lose", "leader", {})
    started = fault.start(env)
    assert (started.receipt, started.targets) == ("landed", ("n1",))
    env.restarted.clear()
    stopped = fault.stop(env)
    assert (stopped.receipt, env.restarted, env.processes("n1")) == ("undone", [], [])
    others = [node for node in env.servers if node != "n1"]
    assert stopped.evidence == {"gone": ["n1"], "left": others}
    assert stopped.reason == f"n1 is gone for good; {len(others)} of {len(env.servers)} left"

    another = faults.make("lose", "follower", {})
    skipped = another.start(env)
    assert (skipped.receipt, skipped.targets) == ("skipped", ())
    assert "n1 is gone already" in str(skipped.reason)
    assert another.stop(env).receipt == "undone"
    assert len(env.processes(others[0])) > 0

    env.restart_service("n1", keep_data=True)
    told = fault.stop(env)
    assert told.receipt == "unproven"
    assert told.reason == "n1 runs again, and was to be gone for good"


@pytest.mark.parametrize(
    ("target", "servers", "why"),
    [
        ("leader", 1, "leaves nothing that could go on"),
        ("c0", 3, "what is lost for good is a server"),
        ("follower", 2, None),
    ],
)
def test_what_can_be_lost(target: str, servers: int, why: str | None) -> None:
    """One server of several."""
    said = faults.why_not("lose", target, system="etcd", servers=servers)
    assert (said is None) == (why is None)
    assert str(why) in str(said)


def test_two_servers_have_no_minority() -> None:
    """Both are the quorum."""
    assert "none can be done without" in str(faults.why_not("kill", "minority", system="etcd", servers=2))
    assert faults.why_not("kill", "majority", system="etcd", servers=2) is None


def test_kill_of_the_holder(env: SmallTrial) -> None:
    """The contender's process is gone, and another one lives at the end."""
    (before,) = env.contender_pids("c0")
    fault = faults.make("kill", "holder", {})
    started = fault.start(env)
    assert (started.receipt, started.targets, started.processes) == ("landed", ("c0",), (0,)), started
    rows = env.links["c0"].call("processes")["processes"]
    assert before not in [row["pid"] for row in rows if row["state"] not in "ZX"]
    stopped = fault.stop(env)
    assert stopped.receipt == "undone", stopped
    assert [row["pid"] for row in stopped.evidence["restarted"]["c0"]["processes"]] == list(env.contender_pids("c0"))
    assert before not in env.contender_pids("c0")


def test_reset_of_the_holder(env: SmallTrial) -> None:
    """All of its connections end, and it lives on; again and again where that is asked for."""
    until(lambda: env.connections("c0").count("2379") == len(env.servers), "the contender's connections")
    (alive,) = env.contender_pids("c0")
    others = sorted(env.connections("c1").split())
    fault = faults.make("reset", "holder", {"every": 0.05})
    started = fault.start(env)
    assert (started.receipt, started.targets, started.processes) == ("landed", ("c0",), (0,)), started
    seen = started.evidence["reset"]["connections"]
    assert {server: len(each) for server, each in seen.items()} == dict.fromkeys(env.servers, 1)
    now = env.connections("c0")
    assert not [each for listed in seen.values() for each in listed if each.split(" > ")[0] in now]
    until(lambda: len(fault._rounds) > 2, "another round")  # type: ignore[attr-defined]
    stopped = fault.stop(env)
    assert stopped.receipt == "undone", stopped
    assert stopped.evidence["processes"] == [alive]
    assert sum(len(each["connections"]) for each in stopped.evidence["later"]) > 0, "it had connected again"
    assert sorted(env.connections("c1").split()) == others, "nobody else was touched"


def test_reset_of_one_without_connections_is_unproven(env: SmallTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """There was nothing to reset, and that is said."""
    monkeypatch.setattr(env, "addresses", lambda node: ("10.77.0.99",))
    started = faults.make("reset", "waiter", {"patience": 0.1}).start(env)
    assert started.receipt == "unproven"
    assert started.reason == "c1 had no connection to any server within 0.1 s"


def test_kill_that_is_not_followed_by_a_start_is_unproven(env: SmallTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that does not come back is told."""
    monkeypatch.setattr("nemesis.kill.BACK_SECONDS", 0.2)
    monkeypatch.setattr(env, "restart_service", lambda node, keep_data, service=None: None)
    fault = faults.make("kill", "leader", {})
    assert fault.start(env).receipt == "landed"
    stopped = fault.stop(env)
    assert stopped.receipt == "unproven"
    assert "no process of the service" in str(stopped.reason)
    monkeypatch.undo()
    env.restart_service("n1", keep_data=True)


@pytest.mark.parametrize("target", ["leader", "holder"])
def test_clock(env: SmallTrial, target: str) -> None:
    """The evidence has each process' own reading, before and after."""
    fault = faults.make("clock", target, {"offset": -12.5, "clocks": "both"})
    started = fault.start(env)
    assert started.receipt == "landed", started
    node = started.targets[0]
    moved = started.evidence["moved"][node]["processes"][0]["moved"]
    assert moved["realtime"] == pytest.approx(-12.5, abs=0.1)
    assert moved["monotonic"] == pytest.approx(-12.5, abs=0.1)
    assert moved["boottime"] == pytest.approx(0, abs=0.1)
    assert env.links[node].call("verify_clean")["clean"] is False
    stopped = fault.stop(env)
    assert stopped.receipt == "undone", stopped


def test_clock_of_a_process_that_died_meanwhile(env: SmallTrial) -> None:
    """A process that took its patched pages to the grave leaves nothing to undo."""
    fault = faults.make("clock", "leader", {})
    assert fault.start(env).receipt == "landed"
    env.links["n1"].call("kill")
    assert fault.stop(env).receipt == "undone"
    env.restart_service("n1", keep_data=True)


@pytest.mark.parametrize("kind", ["freeze", "clock", "partition"])
def test_a_dead_agent_is_an_unproven_receipt_not_a_crash(env: SmallTrial, kind: str) -> None:
    """With the agent gone in the middle of a fault, stop says so; the guardian has undone it."""
    from nemesis.link import open_agent

    fault = faults.make(kind, "leader", {})
    assert fault.start(env).receipt == "landed"
    os.kill(env.nodes["n1"].outer(env.links["n1"].hello["pid"]), signal.SIGKILL)
    stopped = fault.stop(env)
    assert stopped.receipt == "unproven"
    assert "n1" in str(stopped.reason)
    env.links["n1"].close()
    env.links["n1"] = open_agent(env.nodes["n1"])
    assert "T" not in "".join(str(row["threads"]) for row in env.processes("n1"))


def test_none_does_nothing(env: SmallTrial) -> None:
    """No fault is skipped, and says why."""
    fault = faults.make("none", "", {})
    assert fault.start(env).receipt == "skipped"
    assert fault.stop(env).receipt == "undone"


def test_nobody_to_hit(env: SmallTrial) -> None:
    """A target that nobody answers to is an error that says what was awaited."""
    env.leads, env.holds = None, None
    with pytest.raises(NoTarget, match=r"no server was known to lead within 0\.1 s"):
        faults.make("freeze", "leader", {"patience": 0.1}).start(env)
    with pytest.raises(NoTarget, match=r"nobody held the lock within 0\.1 s"):
        faults.make("partition", "holder", {"patience": 0.1}).start(env)


def test_ring_of_five() -> None:
    """In a ring of majorities every server reaches its two neighbours, and no other."""
    if reason := why_not():
        pytest.skip(reason)
    with lan("n1", "n2", "n3", "n4", "n5", "resource") as nodes:
        env = SmallTrial(nodes)
        fault = faults.make("partition", "all", {"topology": "ring"})
        started = fault.start(env)
        assert started.receipt == "landed", started
        assert links(env, 0) == {"n1-n3", "n1-n4", "n2-n4", "n2-n5", "n3-n5"}
        assert started.evidence["expected"]["leaders"] == ("n1", "n2", "n3", "n4", "n5")
        assert fault.stop(env).receipt == "undone"
        env.close()

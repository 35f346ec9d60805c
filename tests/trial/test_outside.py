"""What others do to a running trial: it is seen, named, in the history, and accuses nobody.

Each of these was done to a trial that knew nothing of it before, and read as a violation of `progress`, or as expected.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from tests import place
from tests.runtime.conftest import pause
from tests.trial.test_trial import BEGUN_SECONDS, FEW, events, fencepost, record, start
from tests.waiting import until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

SHORT = ("redis", "--ttl", "1", "--progress-bound", "2", "--warmup", "0.5", "--recovery", "1", *FEW)
ENOUGH = ("--min-grants", "1", "--min-handovers", "0")
STANDSTILL_SECONDS = 3.0
"""Longer than the lock may stay free."""


class Beside:
    """A trial that runs in a process of its own, and somebody who has access to its engine."""

    def __init__(self, tmp_path: Path, *words: str) -> None:
        self.process, self.folder = start(tmp_path, *SHORT, *ENOUGH, *words)
        self.client = docker.from_env()
        self.output = ""

    def __enter__(self) -> Beside:
        until(lambda: self._ended() or self.grants() >= 2, "two grants", BEGUN_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.client.close()

    def _ended(self) -> bool:
        if self.process.poll() is None:
            return False
        raise AssertionError(f"the trial has ended: {self.process.communicate()[0]}")

    def events(self) -> list[dict[str, Any]]:
        """The history's events so far; its last line may be half of one."""
        path = self.folder / "history.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [event for event in map(json.loads, lines) if event["type"] not in ("meta", "end")]

    def grants(self) -> int:
        """How many there were so far."""
        return sum(event["f"] == "acquire" and event["type"] == "ok" for event in self.events())

    def outside(self) -> list[dict[str, Any]]:
        """The starts and stops of what others did, as the history has them."""
        return [event for event in self.events() if event.get("kind") == "outside"]

    def another_grant(self) -> None:
        """Wait for one from now on."""
        before = self.grants()
        until(lambda: self._ended() or self.grants() > before, "another grant", 60)

    def container(self, node: str, part: str = "node") -> Any:
        """A container of the trial."""
        labels = [f"fencepost.site={record(self.folder)['site']}", f"fencepost.node={node}", f"fencepost.part={part}"]
        (found,) = self.client.containers.list(all=True, filters={"label": labels})
        return found

    @contextmanager
    def paused(self, node: str, part: str = "node") -> Iterator[None]:
        container = self.container(node, part)
        pause(self.client.api, container.id)
        yield
        container.unpause()

    @contextmanager
    def stopped(self, node: str, word: str, part: str = "node") -> Iterator[None]:
        """SIGSTOP from the host to the processes whose command line has this word."""
        pids = self.pids(node, word, part)
        assert pids, f"no process {word} on {node}"
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def pids(self, node: str, word: str, part: str = "node") -> list[int]:
        """Processes by their numbers on the host."""
        rows = self.container(node, part).top(ps_args="-eo pid,args")["Processes"]
        return [int(row[0]) for row in rows if word in row[1]]

    def kill(self, node: str, word: str) -> None:
        """SIGKILL from the host to a node's processes whose command line has this word. One that is gone by its turn
        ended with another, as an agent's child does.
        """
        pids = self.pids(node, word)
        assert pids, f"no process {word} on {node}"
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @contextmanager
    def disconnected(self, node: str) -> Iterator[None]:
        site, addresses = record(self.folder)["site"], record(self.folder)["nodes"][node]["addresses"]
        network = self.client.networks.get(f"fencepost-{site}")
        network.disconnect(self.container(node))
        yield
        network.connect(
            self.container(node),
            ipv4_address=addresses[0],
            ipv6_address=addresses[1] if len(addresses) > 1 else None,
            aliases=[node],
        )

    @contextmanager
    def killed(self, node: str, part: str) -> Iterator[None]:
        container = self.container(node, part)
        container.kill()
        yield
        container.start()

    def during(self, act: Any, seconds: float) -> None:
        """Do something for a while, until it stands in the history with its end; then wait until the lock is had."""
        before = len(self.outside())
        with act:
            time.sleep(seconds)  # what is tested is a stretch of time, not a condition
        until(lambda: self._ended() or len(self.outside()) >= before + 2, "its start and its stop", 60)
        self.another_grant()

    def end(self) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Wait for the end: exit code, trial.json, and what `fencepost check` says of the history."""
        self.output, _ = self.process.communicate(timeout=180)
        checked = fencepost("check", str(self.folder), "--json")
        return self.process.returncode, record(self.folder), json.loads(checked.stdout)[0]["verdicts"]


def told(beside: Beside) -> list[tuple[str, str, list[int], bool]]:
    """Node, what, contenders and whether it ended, of what others did."""
    outside = [event for event in events(beside.folder) if event.get("kind") == "outside"]
    undone = {event["id"] for event in outside if event["phase"] == "stop" and event["receipt"] == "undone"}
    return [
        (" ".join(event["targets"]), event["what"], event["processes"], event["id"] in undone)
        for event in outside
        if event["phase"] == "start"
    ]


def accuses_nobody(code: int, trial: dict[str, Any], verdicts: dict[str, Any], names: list[str]) -> None:
    """A harness error that names whom it happened to, and a history that says so by itself."""
    assert code == 4, trial
    assert trial["outcome"]["word"] == "harness-error"
    for name in names:
        assert any(name in reason for reason in trial["outcome"]["reasons"]), (name, trial["outcome"]["reasons"])
    assert verdicts["progress"]["valid"] is not False, verdicts["progress"]
    assert verdicts["lease"]["valid"] is not False, verdicts["lease"]
    assert verdicts["faults"]["valid"] == "unknown", verdicts["faults"]
    assert {finding["kind"] for finding in verdicts["faults"]["findings"]} == {"outside"}


def test_what_others_do_is_seen_and_accuses_nobody(tmp_path: Path) -> None:
    """A server that is paused, stopped by a signal, or off the network, each for longer than the lock may stay free;
    then a contender's node or process, an agent, the resource; each by name, with the contender that it froze. That the
    last thing ends the trial spares it a time of its own: on a busy machine all this takes twice as long.
    """
    with Beside(tmp_path, "--duration", "600", "--contenders", "4") as beside:
        beside.during(beside.paused("n1", "service"), STANDSTILL_SECONDS)
        beside.during(beside.stopped("n1", "redis-server", "service"), STANDSTILL_SECONDS)
        beside.during(beside.disconnected("n1"), STANDSTILL_SECONDS)
        beside.during(beside.paused("c1"), 1.0)
        beside.during(beside.stopped("c2", "workloads.contender"), 1.0)
        beside.during(beside.stopped("c3", "python3 -I"), 1.0)
        beside.during(beside.disconnected("c0"), 0.5)
        beside.during(beside.paused("resource", "service"), 1.0)
        beside.during(beside.stopped("resource", "postgres", "service"), 2.0)
        kill_agent(beside)
        code, trial, verdicts = beside.end()
    assert told(beside) == [
        ("n1", "paused", [], True),
        ("n1", "paused", [], True),
        ("n1", "disconnected", [], True),
        ("c1", "paused", [1], True),
        ("c2", "paused", [2], True),
        ("c3", "stalled", [], True),
        ("c0", "disconnected", [0], True),
        ("resource", "paused", [], True),
        ("resource", "paused", [], True),
        ("c1", "killed", [], False),
    ]
    names = ["redis on n1 was paused", "node n1 was off"]
    names += ["node c1", "contender 2 on c2", "the agent on c3", "node c0", "the resource"]
    accuses_nobody(code, trial, verdicts, names)
    assert verdicts["progress"]["valid"] == "unknown"
    journal = [json.loads(line) for line in (beside.folder / "faults.jsonl").read_text().splitlines()]
    assert all(line["evidence"]["seen"] for line in journal)


def kill_node(beside: Beside) -> None:
    beside.container("n1").kill()


def kill_agent(beside: Beside) -> None:
    beside.kill("c1", "python3 -I")


def kill_contender(beside: Beside) -> None:
    beside.kill("c1", "workloads.contender")


def stop_service(beside: Beside) -> None:
    beside.container("n1", "service").stop(timeout=0)


def kill_resource(beside: Beside) -> None:
    beside.container("resource", "service").kill()


def exhaust_service(beside: Beside) -> None:
    service = beside.container("n1", "service")
    service.update(mem_limit="24m", memswap_limit="24m")
    service.exec_run(["redis-cli", "setrange", "big", "400000000", "x"], detach=True)


@pytest.mark.parametrize(
    ("act", "expected", "words"),
    [
        (kill_node, ("n1", "killed", []), ["n1 ended"]),
        (kill_agent, ("c1", "killed", []), ["the agent on c1 ended"]),
        (kill_contender, ("c1", "killed", [1]), ["contender 1 on c1 ended with exit code 137"]),
        (
            stop_service,
            ("n1", "killed", []),
            ["redis on n1 ended, and no fault did that", "exited with code 137"],
        ),
        (kill_resource, ("resource", "killed", []), ["the resource ended"]),
        (exhaust_service, ("n1", "oom", []), ["redis on n1 ran out of memory"]),
    ],
)
def test_what_others_end_ends_the_trial_early_with_its_name(
    tmp_path: Path, act: Callable[[Beside], None], expected: tuple[str, str, list[int]], words: list[str]
) -> None:
    """Long before its time, as a harness error, with everything removed; one thing, however many programs went with it.
    A contender that dies stands as a crash in the history, and nobody else does.
    """
    with Beside(tmp_path, "--duration", "120") as beside:
        act(beside)
        code, trial, verdicts = beside.end()
        assert place.left_of(trial["site"]) == []
    assert told(beside) == [(*expected, False)]
    accuses_nobody(code, trial, verdicts, words[:1])
    for word in words:
        assert word in trial["error"]
    if act is kill_contender:
        assert [event["process"] for event in events(beside.folder) if event["f"] == "crash"] == [1]


def test_a_lease_that_was_broken_meanwhile_is_broken(tmp_path: Path) -> None:
    """Somebody pauses a contender, and somebody deletes the lock: that is a violation, whoever did it."""
    deleting = "for turn in $(seq 30); do redis-cli flushall || exit 1; sleep 0.1; done"
    with Beside(tmp_path, "--duration", "15") as beside:
        assert beside.container("n1", "service").exec_run(["sh", "-c", deleting]).exit_code == 0
        beside.during(beside.paused("c1"), 1.0)
        code, trial, verdicts = beside.end()
    assert code == 1, beside.output
    assert trial["outcome"]["word"] == "violation"
    assert verdicts["lease"]["valid"] is False
    assert verdicts["faults"]["valid"] == "unknown"
    assert any("node c1 was paused" in reason for reason in trial["outcome"]["reasons"])


def test_what_the_trial_does_itself_on_a_busy_machine_is_nobody_elses_doing(tmp_path: Path) -> None:
    """Kills and restarts of the service, with its data and without, and two processors that others use as they can."""
    stress = shutil.which("stress-ng")
    load = [stress, "--cpu", "2"] if stress else [sys.executable, "-c", "import os; os.fork()\nwhile True: pass"]
    words = ("--fault", "kill-leader", "--fault-on", "1", "--fault-off", "1", "--duration", "6")
    others = subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        trials = []
        for keep_data in ("true", "false"):
            option = ("--progress-bound", "20", "--fault-option", f"keep_data={keep_data}")
            trials.append(start(tmp_path / keep_data, *SHORT, *ENOUGH, *words, *option))
        outputs = [process.communicate(timeout=2 * BEGUN_SECONDS)[0] for process, _ in trials]
    finally:
        os.killpg(others.pid, signal.SIGKILL)
        others.wait()
        for process, _ in trials:
            process.kill()
    for (process, folder), output in zip(trials, outputs, strict=True):
        faults = [event for event in events(folder) if event["f"] == "fault"]
        assert {event["kind"] for event in faults} == {"kill"}, output
        assert len(faults) >= 4, output
        # A lock that is killed without its data may well be broken, and on so busy a machine a kill may find nobody at
        # work; both are other tests'. A harness error is what somebody else's doing would be.
        assert process.returncode in (0, 1, 3), output

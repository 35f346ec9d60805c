"""The contender as a process: PROTOCOL.md over real pipes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.workloads.test_validate import GOOD
from workloads.clocks import Stamp

IDLE = {**GOOD, "workload": "tests.workloads.idle:Idle"}


class Process:
    """A contender process, spoken to in lines."""

    def __init__(self, first_line: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-u", "-m", "workloads.contender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.say(first_line)

    def say(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        return json.loads(self.popen.stdout.readline())  # type: ignore[no-any-return]

    def rest(self) -> list[dict[str, Any]]:
        assert self.popen.stdout is not None
        return [json.loads(line) for line in self.popen.stdout]


@pytest.fixture
def spawn() -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def spawner(**changes: Any) -> Process:
        made.append(Process(json.dumps({**IDLE, "epoch": Stamp.now().boot_ns, **changes})))
        return made[-1]

    yield spawner
    for process in made:
        process.popen.kill()
        process.popen.wait()
        for pipe in (process.popen.stdin, process.popen.stdout, process.popen.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def test_it_says_hello_waits_works_and_says_goodbye(spawn: Callable[..., Process]) -> None:
    """Nothing before the start, events in order after it, everything given back at the stop, and exit code 0."""
    process = spawn()
    hello = process.hear()["hello"]
    assert hello["pid"] == process.popen.pid
    assert hello["client"] == {"name": "noop", "library": "none", "tokens": False, "renewals": "seen", "expires": True}
    assert hello["errors"] == {"*": "info"}
    process.say('{"cmd": "start"}')
    first = process.hear()
    assert (first["f"], first["type"], first["process"], first["lock"]) == ("acquire", "invoke", 0, "lock")
    process.say('{"cmd": "stop"}')
    *events, bye = process.rest()
    assert process.popen.wait(60) == 0
    assert bye["bye"]["acquires"] == bye["bye"]["grants"] > 0
    assert events[-1]["f"] == "release"
    times = [event["time"] for event in events]
    assert times == sorted(times)
    assert 0 < times[0] < 60e9


def test_stop_before_start_is_a_goodbye(spawn: Callable[..., Process]) -> None:
    """A trial that ends early doesn't leave it waiting."""
    process = spawn()
    process.hear()
    process.say('{"cmd": "stop"}')
    assert [list(line) for line in process.rest()] == [["bye"]]
    assert process.popen.wait(60) == 0


@pytest.mark.parametrize("started", [True, False])
def test_the_end_of_stdin_ends_it_at_once(spawn: Callable[..., Process], started: bool) -> None:
    """Without a goodbye: nobody is left to hear it."""
    process = spawn()
    process.hear()
    if started:
        process.say('{"cmd": "start"}')
        process.hear()
    began = time.monotonic()
    assert process.popen.stdin is not None
    process.popen.stdin.close()
    assert process.popen.wait(60) == 0
    assert time.monotonic() - began < 8
    assert not any("bye" in line for line in process.rest())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ttl": -1}, "ttl: must lie between"),
        ({"client": "workloads.clients.base:Nothing"}, "client: 'workloads.clients.base:Nothing' can't be loaded"),
        ({"parameters": {"problem": "the shed is locked"}}, "the shed is locked"),
        ({"workload": "workloads.lock:LockWorkload"}, "resource: the workload lock needs one"),
        ({"workload": "workloads.lock:LockWorkload", "parameters": {"x": 1}}, "parameters.x: unknown"),
    ],
)
def test_what_keeps_it_from_starting_is_fatal_and_told(
    spawn: Callable[..., Process], changes: dict[str, Any], words: str
) -> None:
    """One line with the reason, and exit code 1."""
    process = spawn(**changes)
    assert words in process.hear()["fatal"]
    assert process.popen.wait(60) == 1


def test_what_is_no_command_is_left_unheeded_and_logged(spawn: Callable[..., Process]) -> None:
    """The harness would not send it; whoever did finds it in the log."""
    process = spawn()
    process.hear()
    for line in ("", "hello", "7", '{"cmd": "dance"}'):
        process.say(line)
    process.say('{"cmd": "stop"}')
    process.rest()
    assert process.popen.stderr is not None
    log = process.popen.stderr.read().decode()
    assert log.count("not a command") == 3


def test_a_client_that_breaks_its_protocol_ends_the_contender(spawn: Callable[..., Process]) -> None:
    """What it says from there on could not be trusted: no goodbye, exit code 1, the problem in words."""
    process = spawn(client="tests.workloads.test_process:Liar")
    process.hear()
    process.say('{"cmd": "start"}')
    *_, last = process.rest()
    assert "token must be an integer or None, not 'seven'" in last["fatal"]
    assert process.popen.wait(60) == 1


def Liar(config: Any) -> Any:
    """A client whose token is a word."""
    from workloads.clients.base import Acquired, NoLock

    client: Any = NoLock(config)
    client.acquire = lambda wait_seconds, cancelled: Acquired(
        "ok",
        "seven",
        2.0,
        Stamp.now(),  # type: ignore[arg-type]
    )
    return client


@pytest.mark.parametrize(
    ("client", "unwanted"),
    [
        ("etcd", ["kazoo", "redis", "requests", "urllib3"]),
        ("consul", ["kazoo", "redis", "requests", "urllib3"]),
        ("zookeeper", ["redis", "requests", "urllib3", "asyncio"]),
        ("redis", ["kazoo", "requests", "urllib3"]),
    ],
)
def test_a_contender_imports_only_what_it_uses(client: str, unwanted: list[str]) -> None:
    """Five of them start at once on two cores, next to the servers. And never the harness: a node has none."""
    program = (
        f"import sys, workloads.contender, workloads.lock, workloads.clients.{client}; print('\\n'.join(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert f"workloads.clients.{client}" in loaded
    for name in [*unwanted, "psycopg2", "harness", "nemesis", "checkers", "pandas"]:
        assert name not in loaded

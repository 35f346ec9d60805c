"""The twin ledgers against the real PostgreSQL: what the fenced one refuses, and what both remember."""

from __future__ import annotations

import json
import queue
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.runtime import removal
from harness.runtime.base import Node, NodeSpec, Site
from harness.runtime.docker import DockerRuntime
from harness.trial import resource

pytestmark = pytest.mark.docker

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    """The resource and a contender's node."""
    runtime = DockerRuntime()
    site: Site = runtime.open_site(f"test-{secrets.token_hex(4)}")
    try:
        yield site.start_nodes(
            [
                NodeSpec("resource", role="resource", faultable=False, service=resource.service()),
                NodeSpec("c0", image="contender", role="contender"),
            ]
        )
    finally:
        site.close()
        assert removal.find(runtime.engine, site.id) == []


@pytest.fixture
def run() -> str:
    """A run of its own for each test: one PostgreSQL serves many trials."""
    return secrets.token_hex(4)


@pytest.fixture
def call(nodes: list[Node], run: str) -> Iterator[Call]:
    """Calls a method of one of two contenders' twins."""
    answers: queue.Queue[bytes] = queue.Queue()
    errors: list[bytes] = []
    source = Path(__file__).with_name("twins.py").read_text()
    process = nodes[1].spawn(["python3", "-u", "-c", source], on_line=answers.put, on_error_line=errors.append)

    def say(what: Any, seconds: float = 10.0) -> Any:
        process.send(json.dumps(what).encode() + b"\n")
        try:
            return json.loads(answers.get(timeout=seconds))
        except queue.Empty:
            pytest.fail(f"no answer to {what} within {seconds:g} s: {b''.join(errors).decode(errors='replace')}")

    assert say({**resource.connection("resource"), "run": run}, 60.0) == [None, None]
    yield lambda *what: say(list(what))
    process.close_stdin()
    process.wait(5.0)


def test_a_stale_writer_is_refused_by_the_fenced_twin_alone(call: Call, nodes: list[Node], run: str) -> None:
    """The story of the project on one page: token 1 pauses, token 2 works, token 1 comes back."""
    for twin in ("fenced", "unfenced"):
        assert call(0, "read", twin, 1) == 0
        assert call(1, "read", twin, 2) == 0
        assert call(1, "write", twin, 2, 0, "1-1001", 1001) == 1
    refused = call(0, "write", "fenced", 1, 0, "0-1000", 1000)
    assert refused["type"] == "fail"
    assert "stale token 1" in refused["error"]
    assert call(0, "write", "unfenced", 1, 0, "0-1000", 1000) == 2
    assert call(1, "read", "fenced", 2) == 1001
    assert call(1, "read", "unfenced", 2) == 1000  # the update of token 2 is lost

    rows = resource.read_ledger(nodes[1], {**resource.connection("resource"), "run": run})
    assert [
        (row["resource"], row["seq"], row["process"], row["token"], row["read"], row["version"]) for row in rows
    ] == [
        ("fenced", 1, 1, 2, 0, 1001),
        ("unfenced", 1, 1, 2, 0, 1001),
        ("unfenced", 2, 0, 1, 0, 1000),
    ]
    assert all(row["lock"] == "lock" and "run" not in row and row["at"] for row in rows)


def test_a_read_fences_too(call: Call) -> None:
    """The old holder's last write can't slip in between the new one's read and write."""
    assert call(0, "read", "fenced", 1) == 0
    assert call(1, "read", "fenced", 2) == 0
    assert call(0, "write", "fenced", 1, 0, "0-1000", 1000)["type"] == "fail"
    assert call(0, "read", "fenced", 1)["type"] == "fail"
    assert call(1, "write", "fenced", 2, 0, "1-1001", 1001) == 1


def test_the_holder_of_a_token_may_write_again(call: Call) -> None:
    """The mark refuses lower tokens, not the same one; and seq goes on by one."""
    for number in range(1, 4):
        read = call(0, "read", "fenced", 5)
        assert call(0, "write", "fenced", 5, read, f"0-{number}", number * 1000) == number


def test_runs_do_not_see_each_other(call: Call, nodes: list[Node]) -> None:
    """A lane's PostgreSQL goes through many trials, each with rows of its own."""
    assert call(0, "write", "unfenced", 1, 0, "0-1000", 1000) == 1
    config = {**resource.connection("resource"), "run": "another"}
    assert resource.read_ledger(nodes[1], config) == []


def test_a_statement_that_can_t_have_happened_is_a_failure(call: Call) -> None:
    """An error in PostgreSQL's own words was rolled back: fail, not info."""
    refused = call(0, "write", "fenced", 1, 0, "0-2**70", 2**70)
    assert refused["type"] == "fail"
    assert call(0, "read", "fenced", 1) == 0


def test_it_says_when_it_is_ready(nodes: list[Node]) -> None:
    """In PostgreSQL's own words."""
    end = time.monotonic() + 30
    while not (seen := resource.ready(nodes[0]))[0]:
        assert time.monotonic() < end, seen
    assert "accepting connections" in seen[1]

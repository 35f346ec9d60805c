"""The twin ledgers against the real PostgreSQL: what the fenced one refuses, and what both remember."""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from checkers import judge
from harness import history
from harness.errors import HarnessError
from harness.runtime.base import Node, NodeSpec
from harness.trial import resource
from harness.trial.clock import HistoryClock
from harness.trial.config import TrialConfig
from harness.trial.record import Progress, TrialRecord
from harness.trial.recorder import Recorder
from harness.trial.running import Running
from harness.trial.wayout import WayOut
from tests import place
from workloads import tally

pytestmark = pytest.mark.nodes

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    """The resource and a contender's node."""
    with place.site() as site:
        yield site.start_nodes(
            [
                NodeSpec("resource", role="resource", faultable=False, service=resource.service()),
                NodeSpec("c0", image="contender", role="contender"),
            ]
        )


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

    assert say({**resource.connection("resource"), "run": run}, 60.0) == [None] * 6
    yield lambda *what: say(list(what))
    process.close_stdin()
    process.wait(60.0)


def test_a_stale_writer_is_refused_by_the_fenced_twin_alone(call: Call, nodes: list[Node], run: str) -> None:
    """The story of the project on one page: token 1 pauses, token 2 works, token 1 comes back."""
    for twin in ("fenced", "unfenced"):
        assert call(0, "read", twin, 1) == 0
        assert call(1, "read", twin, 2) == 0
        assert call(1, "write", twin, 2, 0, 2001, 1001) == 1
    refused = call(0, "write", "fenced", 1, 0, 1000, 1000)
    assert refused["type"] == "fail"
    assert "stale token 1" in refused["error"]
    assert call(0, "write", "unfenced", 1, 0, 1000, 1000) == 2
    assert call(1, "read", "fenced", 2) == 1001
    assert call(1, "read", "unfenced", 2) == 1000  # the update of token 2 is lost

    found = resource.read(nodes[0], run, lambda: 99)
    assert found.asked_ns == 99
    assert found.twins == [("lock", "fenced"), ("lock", "unfenced")]
    assert [msgspec.structs.astuple(write)[:-1] for write in found.writes] == [
        ("lock", "fenced", 1, 2001, 1, 2, 0, 1001),
        ("lock", "unfenced", 1, 2001, 1, 2, 0, 1001),
        ("lock", "unfenced", 2, 1000, 0, 1, 0, 1000),
    ]
    assert all(datetime.fromisoformat(write.at).tzinfo for write in found.writes)
    assert found.ids("lock", "unfenced") == [2001, 1000]


def test_the_fences_that_are_wrong_on_purpose_let_one_stale_write_through_each(call: Call) -> None:
    """Off by one: the token before the newest passes, an older one doesn't. Unraised: the old holder's write lies
    between the new one's read and its write. On the right fence both are refused, as above.
    """
    for token in (1, 2, 3):
        assert call(2, "read", "fenced", token) == 0
    assert "stale token 1" in call(2, "write", "fenced", 1, 0, 1, 1)["error"]
    assert call(2, "write", "fenced", 2, 0, 2, 2) == 1
    assert call(3, "read", "fenced", 7) == 2
    assert call(3, "write", "fenced", 6, 2, 3, 3) == 2
    assert call(3, "write", "fenced", 7, 2, 4, 4) == 3
    assert "stale token 6" in call(3, "write", "fenced", 6, 4, 5, 5)["error"]


def test_a_stale_batch_doubles_is_refused_or_is_swallowed(call: Call, nodes: list[Node], run: str) -> None:
    """The famous story in three worlds: 1 looks and pauses, 2 looks and sends, 1 sends. Counted by the mail room."""
    stale, late = {}, {}
    for number, world in enumerate(("unfenced", "fenced", "idempotent")):
        stale[world] = call(0, "look", world, 1, 5, 2, number)
        late[world] = call(1, "look", world, 2, 5, 3, 1000 + number)
        assert (stale[world][2], late[world][2]) == ([1, 2], [1, 2, 3])
    assert call(1, "send", "unfenced", 2, late["unfenced"], 1000, 1000) == 1
    assert call(1, "send", "fenced", 2, late["fenced"], 1001, 1000) == 1
    assert call(1, "file", 2, late["idempotent"], 1002, 0) == 3
    assert call(0, "send", "unfenced", 1, stale["unfenced"], 0, 2000) == 2
    assert "stale token 1" in call(0, "send", "fenced", 1, stale["fenced"], 1, 2000)["error"]
    assert "stale token 1" in call(0, "look", "fenced", 1, 5, 2, 3)["error"]
    assert call(0, "file", 1, stale["idempotent"], 2, 0) == 0
    assert call(1, "look", "unfenced", 2, 5, 3, 1003) == [1, 2000, [4, 5]]

    counted = tally.read(resource.ask(nodes[0], run, tally.TALLY))
    assert [(each.batches, each.refused, each.statements, each.swallowed, each.twice) for each in counted.values()] == [
        (2, 0, 5, 0, 2),
        (1, 2, 3, 0, 0),
        (2, 0, 3, 2, 0),
    ]
    assert counted["unfenced"].doubled == [(1, 1), (1, 2)]
    ledger = resource.read(nodes[0], run, lambda: 0)
    assert ledger.ids("lock", "fenced") == [1001]  # the twins' audit knows these batches, too


def test_a_month_begins_when_all_have_theirs(call: Call, nodes: list[Node], run: str) -> None:
    """And is never begun before; a batch that comes late for the last one is still of the last one."""
    first = call(0, "look", "idempotent", None, 3, 2, 0)
    assert first == [1, None, [1, 2]]
    assert call(0, "file", None, first, 1, 0) == 2
    assert call(0, "look", "idempotent", None, 3, 2, 2) == [1, None, [3]]
    assert call(0, "file", None, [1, None, [3]], 3, 0) == 1
    assert call(0, "look", "idempotent", None, 3, 2, 4) == [2, None, [1, 2]]
    assert call(1, "file", None, first, 1001, 0) == 0
    assert tally.read(resource.ask(nodes[0], run, tally.TALLY))["idempotent"].months == 1


def test_a_read_fences_too(call: Call) -> None:
    """The old holder's last write can't slip in between the new one's read and write."""
    assert call(0, "read", "fenced", 1) == 0
    assert call(1, "read", "fenced", 2) == 0
    assert call(0, "write", "fenced", 1, 0, 1000, 1000)["type"] == "fail"
    assert call(0, "read", "fenced", 1)["type"] == "fail"
    assert call(1, "write", "fenced", 2, 0, 2001, 1001) == 1


def test_the_holder_of_a_token_may_write_again(call: Call) -> None:
    """The mark refuses lower tokens, not the same one; and seq goes on by one."""
    for number in range(1, 4):
        read = call(0, "read", "fenced", 5)
        assert call(0, "write", "fenced", 5, read, number, number * 1000) == number


def test_runs_do_not_see_each_other(call: Call, nodes: list[Node]) -> None:
    """A lane's PostgreSQL goes through many trials, each with rows of its own."""
    assert call(0, "write", "unfenced", 1, 0, 1000, 1000) == 1
    found = resource.read(nodes[0], "another", lambda: 0)
    assert (found.twins, found.writes) == ([], [])


def test_a_statement_that_can_t_have_happened_is_a_failure(call: Call) -> None:
    """An error in PostgreSQL's own words was rolled back: fail, not info."""
    refused = call(0, "write", "fenced", 1, 0, 1, 2**70)
    assert refused["type"] == "fail"
    assert call(0, "read", "fenced", 1) == 0


def test_it_says_when_it_is_ready(nodes: list[Node]) -> None:
    """In PostgreSQL's own words."""
    end = time.monotonic() + 30
    while not (seen := resource.ready(nodes[0]))[0]:
        assert time.monotonic() < end, seen
    assert "accepting connections" in seen[1]


# -- what an audit finds ----------------------------------------------------------------------------------------------


def psql(node: Node, sql: str) -> str:
    """Behind the resource's back; what was answered."""
    done = node.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "fencepost", "-c", sql])
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode().strip()


class Told:
    """A history of writes that were really made, and the way out of a trial whose resource this is."""

    def __init__(self, folder: Path, call: Call, node: Node, run: str) -> None:
        self.folder, self._call, self._time = folder / run, call, 0
        self.folder.mkdir()
        self.recorder = Recorder(self.folder, {"require": ["fenced"]})
        clock = HistoryClock()
        record = TrialRecord(self.folder, clock, Progress("t"))
        record.data = {"contenders": {"0": {}}}
        lane: Any = SimpleNamespace(resource=node)
        running = Running(lane, clock, recorder=self.recorder)
        config = TrialConfig(system="redis", fault="none")
        self.way_out = WayOut(config, record, running, own_lane=True, keep=False)

    def write(self, process: int, resource: str, token: int, read: int, identity: int, version: int) -> Any:
        """One write, told as a contender tells it."""
        keys = {"process": process, "f": "write", "resource": resource, "token": token}
        told = {**keys, "read": read, "version": version, "id": identity}
        self._time += 2
        self.recorder.event({"time": self._time, "type": "invoke", **told})
        answer = self._call(process, "write", resource, token, read, identity, version)
        if isinstance(answer, int):
            self.recorder.event({"time": self._time + 1, "type": "ok", **told, "seq": answer})
        else:
            self.recorder.event({"time": self._time + 1, **keys, **answer})
        return answer

    def audited(self) -> dict[str, Any]:
        """The verdicts after the audit that every trial makes at its end."""
        self.way_out._running.clock.now = lambda: self._time + 10  # type: ignore[method-assign]
        self.way_out.audit()
        self.way_out.close_history()
        return judge(history.read(self.folder / "history.jsonl")).to_json()["verdicts"]


@pytest.fixture
def told(tmp_path: Path, call: Call, nodes: list[Node], run: str) -> Told:
    """Three accepted writes to each twin, and one that the fenced one refused."""
    told = Told(tmp_path, call, nodes[0], run)
    for twin in ("fenced", "unfenced"):
        read = call(0, "read", twin, 5)
        for number in range(1, 4):
            assert told.write(0, twin, 5, read, number, number * 1000) == number
            read = number * 1000
    assert told.write(1, "fenced", 4, 3000, 1004, 4001)["type"] == "fail"
    return told


def test_a_ledger_that_nobody_touched_has_lost_nothing(told: Told) -> None:
    """Every acknowledged write is found, no refused one; both twins stand in the history before its end line."""
    verdicts = told.audited()
    assert [verdicts[name]["valid"] for name in ("fenced", "damage")] == [True, True]
    assert [verdicts[name]["stats"]["looked_for"] for name in ("fenced", "damage")] == [4, 3]
    lines = [json.loads(line) for line in (told.folder / "history.jsonl").read_text().splitlines()]
    assert [(line["resource"], line["ids"]) for line in lines if line.get("f") == "audit"] == [
        ("fenced", [1, 2, 3]),
        ("unfenced", [1, 2, 3]),
    ]
    assert lines[-1] == {"type": "end", "events": len(lines) - 2}
    rows = [json.loads(line) for line in (told.folder / "ledger.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [1, 2, 3] * 2


def test_rows_deleted_and_inserted_behind_the_resource_s_back_are_gone_and_ghost(
    told: Told, nodes: list[Node], run: str
) -> None:
    """An acknowledged write that is lost, and a refused one that is there after all: verdicts, with both lines."""
    psql(nodes[0], f"DELETE FROM fencepost.ledger WHERE run = '{run}' AND id = 2")
    columns = "run, lock, resource, seq, id, process, token, read, version"
    row = f"'{run}', 'lock', 'fenced', 4, 1004, 1, 4, 3000, 4001"
    psql(nodes[0], f"INSERT INTO fencepost.ledger ({columns}) VALUES ({row})")
    verdicts = told.audited()
    found = {name: [f["kind"] for f in verdicts[name]["findings"]] for name in ("fenced", "damage")}
    assert found["damage"] == ["gone-write"]
    assert sorted(found["fenced"]) == ["ghost-write", "gone-write"]
    assert verdicts["fenced"]["stats"]["gone"] == verdicts["fenced"]["stats"]["ghosts"] == 1
    assert [verdicts[name]["valid"] for name in ("fenced", "damage")] == [False, False]


def test_a_row_that_nobody_told_of_is_a_contender_s_lie(told: Told, nodes: list[Node], run: str) -> None:
    """The verdicts say nothing of it, so it ends the trial as a harness error that names it."""
    psql(nodes[0], f"UPDATE fencepost.ledger SET id = 9 WHERE run = '{run}' AND id = 2 AND resource = 'fenced'")
    with pytest.raises(HarnessError, match=r"no contender told of: write 9 to fenced .*, seq 2$"):
        told.audited()


@pytest.mark.parametrize(
    ("spoil", "mend", "words"),
    [
        ("UPDATE fencepost.ledger SET resource = 'shed' WHERE resource = 'fenced'", "SELECT 1", r"'shed'.*writes"),
        (
            "ALTER TABLE fencepost.ledger RENAME COLUMN id TO name",
            "ALTER TABLE fencepost.ledger RENAME COLUMN name TO id",
            'column "id" does not exist',
        ),
    ],
)
def test_a_ledger_that_can_t_be_read_is_no_audit(
    told: Told, nodes: list[Node], spoil: str, mend: str, words: str
) -> None:
    """A clear error, and never a part of it: what is missing from a list would accuse the resource."""
    psql(nodes[0], spoil)
    try:
        with pytest.raises(HarnessError, match=rf"the ledger on resource can't be read: .*{words}"):
            told.audited()
    finally:
        psql(nodes[0], mend)
    assert '"audit"' not in (told.folder / "history.jsonl").read_text()


def test_no_statement_of_a_contender_comes_behind_the_read(told: Told, nodes: list[Node], run: str) -> None:
    """One that the server still works on when its contender is gone is ended first, and has done nothing then."""
    columns = "run, lock, resource, seq, id"
    late = f"INSERT INTO fencepost.ledger ({columns}) SELECT '{run}', 'lock', 'fenced', 9, 9 FROM pg_sleep(600)"
    ended = threading.Event()
    process = nodes[0].spawn(
        ["psql", "-X", "-U", "fencepost", "-c", late],
        on_line=lambda line: None,
        on_error_line=lambda line: ended.set() if b"terminating connection" in line else None,
    )
    active = f"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%{run}%9%pg_sleep(600)'"
    end = time.monotonic() + 30
    while psql(nodes[0], active.replace("WHERE", "WHERE pid <> pg_backend_pid() AND")) != "1":
        assert time.monotonic() < end, "the statement never began"
    found = resource.read(nodes[0], run, lambda: 0)
    assert ended.wait(60)
    assert process.wait(60) != 0
    assert found.ids("lock", "fenced") == [1, 2, 3]


def test_a_contender_that_may_still_write_leaves_the_resource_without_audit(told: Told) -> None:
    """The rows are kept for people; no verdict is made of what may change."""
    alive: Any = SimpleNamespace(may_write=True, node=SimpleNamespace(name="c2"))
    told.way_out._running.contenders.append(alive)
    with pytest.raises(HarnessError, match="contenders on c2 may still write"):
        told.audited()
    assert (told.folder / "ledger.jsonl").read_text().count("\n") == 6
    assert '"audit"' not in (told.folder / "history.jsonl").read_text()

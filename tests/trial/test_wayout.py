"""The way out of a trial, without nodes: what goes wrong on it keeps nothing from being removed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.systems.attached import Endpoint
from harness.trial import relays
from harness.trial.clock import HistoryClock
from harness.trial.config import TrialConfig
from harness.trial.record import Progress, TrialRecord
from harness.trial.running import Running
from harness.trial.wayout import WayOut


def test_servers_are_removed_also_when_what_was_open_to_them_cannot_be_closed(tmp_path: Path) -> None:
    """In a lane that goes on they would stand in the way of the next trial's; the error is told."""
    removed: list[Any] = []

    class Cluster:
        beside = ("c0",)

        def close(self) -> None:
            raise TimeoutError("the relays")

    lane: Any = SimpleNamespace(
        opened=True,
        replace=lambda nodes: removed.append(nodes),
        close_agents=lambda nodes, agents: None,
        site=SimpleNamespace(remove_nodes=removed.append),
    )
    clock = HistoryClock()
    record = TrialRecord(tmp_path, clock, Progress("t"))
    record.open()
    servers: list[Any] = ["n1"]
    cluster: Any = Cluster()
    running = Running(lane, clock, server_nodes=servers, cluster=cluster)
    way_out = WayOut(TrialConfig(system="redis", fault="none"), record, running, own_lane=False, keep=False)
    way_out.take_down()
    record.close()
    assert removed == [("c0",), ["n1"]]
    assert any("closing what was open to servers: TimeoutError: the relays" in error for error in record.errors)


def test_a_relay_that_does_not_end_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection would stay open for as long as its node is kept."""
    monkeypatch.setattr(relays, "CLOSE_SECONDS", 0.0)
    let_go: list[bool] = []
    process = SimpleNamespace(close_stdin=lambda: None, wait=lambda seconds: None, abandon=lambda: let_go.append(True))
    node: Any = SimpleNamespace(name="e1", spawn=lambda *words, **others: process)
    loop: Any = None
    relay = relays.Relay(node, Endpoint("127.0.0.1", 1), 2379, loop)
    relay.start()
    relay.close()
    assert let_go == [True]

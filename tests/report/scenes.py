"""Trial folders as a real run leaves them, from a small simulation of a lock service under faults.

The simulation is honest: contenders, lease expiry, fencing and the two resources really run, on simulated time, so the
histories have the hand-overs, overlaps and stale writes that a trial has, and the checkers judge them like any other.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import checkers
from harness.history import read

TTL = 2.0


@dataclass
class Resource:
    """What the lock protects; `mark` is the highest token seen when it checks tokens."""

    checks: bool
    version: int = 0
    seq: int = 0
    mark: int = 0


@dataclass
class Scene:
    """One simulated trial. Times in seconds; In each of `freezes` the holder at its start stands still."""

    contenders: int = 5
    seconds: float = 60.0
    guarded: bool = False
    seed: int = 7
    freezes: tuple[tuple[float, float], ...] = ((12.0, 17.0), (26.0, 31.0), (41.0, 46.0))
    early: float = 1.0
    """The service forgets a lease after this share of its ttl; less than 1 makes it break promises."""
    events: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> Scene:
        """Plays it."""
        self.random = random.Random(self.seed)
        self.owner: tuple[int, int] | None = None
        self.expires = 0.0
        self.token = 0
        self.frozen: dict[int, float] = {}
        self.resources = {"fenced": Resource(True), "unfenced": Resource(False)}
        self.tick = 0
        queue: list[tuple[float, int, int, Iterator[float]]] = []
        for process in range(self.contenders):
            self._push(queue, 0.4 + 0.05 * process, process, self._contender(process))
        self._push(queue, 0.0, -1, self._nemesis())
        while queue:
            self.now, _, process, steps = heapq.heappop(queue)
            if self.now > self.seconds:
                continue
            thaw = self.frozen.get(process, 0.0)
            if self.now < thaw:
                self._push(queue, thaw + 0.002, process, steps)
                continue
            self._expire()
            wake = next(steps, None)
            if wake is not None:
                self._push(queue, wake, process, steps)
        return self

    def _push(
        self, queue: list[tuple[float, int, int, Iterator[float]]], at: float, process: int, steps: Iterator[float]
    ) -> None:
        self.tick += 1
        heapq.heappush(queue, (at, self.tick, process, steps))

    def _expire(self) -> None:
        if self.owner is not None and self.now >= self.expires:
            self.owner = None

    def _note(self, process: int | str, type: str, f: str, /, **keys: Any) -> None:
        self.tick += 1
        event = {"time": round(self.now * 1e9), "process": process, "type": type, "f": f, **keys}
        self.events.append((self.now, self.tick, event))

    def _nemesis(self) -> Iterator[float]:
        for number, (start, stop) in enumerate(self.freezes, 1):
            yield start
            while self.owner is None:
                yield self.now + 0.01
            victim = self.owner[0]
            self.frozen[victim] = self.now + stop - start
            common = {"id": f"f{number}", "kind": "freeze", "targets": [f"c{victim}"], "processes": [victim]}
            self._note("nemesis", "info", "fault", phase="start", receipt="landed", **common)
            self._journal("start", common, "landed", {"state": "T", "pids": [14]})
            yield self.frozen[victim]
            self._note("nemesis", "info", "fault", phase="stop", receipt="undone", **common)
            self._journal("stop", common, "undone", {"state": "S", "pids": [14]})

    def _journal(self, phase: str, common: dict[str, Any], receipt: str, evidence: dict[str, Any]) -> None:
        self.faults.append(
            {
                "time": round(self.now * 1e9),
                "phase": phase,
                "target": "holder",
                "receipt": receipt,
                "reason": None,
                "evidence": evidence,
                **common,
            }
        )

    def _contender(self, process: int) -> Iterator[float]:
        draw = self.random
        while True:
            asked = self.now
            self._note(process, "invoke", "acquire")
            yield self.now + draw.uniform(0.003, 0.012)
            while self.owner is not None and self.now < asked + 4.0:
                yield self.now + 0.02 + draw.uniform(0, 0.01)
            if self.owner is not None:
                self._note(process, "fail", "acquire", error="wait limit")
                yield self.now + draw.uniform(0.1, 0.4)
                continue
            self.token += 1
            token = self.token
            self.owner = (process, token)
            self.expires = self.now + TTL * self.early
            sent = self.now - 0.002
            yield self.now + draw.uniform(0.001, 0.004)
            self._note(process, "ok", "acquire", token=token, ttl=TTL, lease_from=round(sent * 1e9))
            yield from self._hold(process, token, sent + TTL)
            yield self.now + draw.uniform(0.05, 0.5)

    def _hold(self, process: int, token: int, deadline: float) -> Iterator[float]:
        draw = self.random
        until = self.now + draw.uniform(0.5, 2.6)
        renew_at = self.now + TTL / 3
        while self.now < until:
            if self.guarded and self.now >= deadline:
                self._note(process, "info", "lost", reason="deadline")
                return
            if self.now >= renew_at:
                sent = self.now
                self._note(process, "invoke", "renew", ttl=TTL)
                yield self.now + draw.uniform(0.002, 0.006)
                if self.owner == (process, token):
                    self.expires = self.now + TTL * self.early
                    deadline = sent + TTL
                    self._note(process, "ok", "renew")
                else:
                    self._note(process, "fail", "renew", held=False, error="lease not found")
                    if self.guarded:
                        self._note(process, "info", "lost", reason="expired")
                        return
                renew_at = self.now + TTL / 3
            yield from self._write(process, token)
            yield self.now + draw.uniform(0.05, 0.2)
        self._note(process, "invoke", "release")
        yield self.now + draw.uniform(0.002, 0.006)
        if self.owner == (process, token):
            self.owner = None
            self._note(process, "ok", "release")
        else:
            self._note(process, "fail", "release", held=False, error="not the holder")

    def _write(self, process: int, token: int) -> Iterator[float]:
        read = {}
        for name, resource in self.resources.items():
            read[name] = resource.version
            resource.mark = max(resource.mark, token)
        yield self.now + self.random.uniform(0.03, 0.09)
        for name, resource in self.resources.items():
            keys = {"resource": name, "token": token, "read": read[name], "version": read[name] + 1}
            self._note(process, "invoke", "write", **keys)
            yield self.now + self.random.uniform(0.001, 0.003)
            if resource.checks and token < resource.mark:
                self._note(process, "fail", "write", **keys, error=f"token {token} is stale, {resource.mark} was seen")
            else:
                resource.seq += 1
                resource.version = read[name] + 1
                self._note(process, "ok", "write", **keys, seq=resource.seq)

    def lines(self) -> list[dict[str, Any]]:
        """The history, meta first."""
        meta = {
            "type": "meta",
            "format": 1,
            "system": "etcd",
            "ttl": TTL,
            "rate_tolerance": 0.001,
            "min_grants": 10,
            "progress_bound": 10 * TTL,
            "require": ["lease", "fencing", "linearizable", "fenced", "progress", "faults"],
        }
        return [meta, *(event for _, _, event in sorted(self.events, key=lambda each: each[:2]))]


def write_history(path: Path, lines: list[dict[str, Any]]) -> Path:
    """One object a line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_trial_folder(
    folder: Path, scene: Scene, *, system: str = "etcd", fault: str = "freeze-holder", **over: Any
) -> Path:
    """A trial's folder as docs/layout.md says, from a scene that was played. `over` replaces keys of trial.json."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = scene.lines()
    lines[0]["system"] = system
    write_history(folder / "history.jsonl", lines)
    write_history(folder / "faults.jsonl", scene.faults)
    judged = checkers.judge(read(folder)).to_json()
    (folder / "verdict.json").write_text(json.dumps(judged, indent=2))
    for node, names in {"n1": ("service.log", "agent.log"), "c0": ("contender.log", "agent.log")}.items():
        (folder / "logs" / node).mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / "logs" / node / name).write_text("nothing happened\n" * 40)
    (folder / "harness.log").write_text("0.0 start\n")
    end = round(scene.seconds * 1e9)
    guarded, kind = scene.guarded, "guarded" if scene.guarded else "naive"
    trial: dict[str, Any] = {
        "format": 1,
        "id": folder.name,
        "cell": {
            "system": system,
            "workload": "lock",
            "fault": fault,
            "parameters": {"holder": kind, "servers": 3, "ttl": TTL},
        },
        "config": {
            "system": system,
            "fault": fault,
            "seed": scene.seed,
            "contenders": scene.contenders,
            "ttl": TTL,
            "holder": kind,
        },
        "repeat": f"fencepost run {system} --fault {fault} --seed {scene.seed}" + ("" if guarded else " --naive"),
        "versions": {
            "fencepost": "0.1.0",
            "system": f"{system} 3.5.21",
            "python": "3.11.9",
            "engine": "Docker 20.10.24",
        },
        "images": {
            "node": {
                "reference": "fencepost/node:5d1c",
                "id": "sha256:0f3a" + "1" * 60,
                "origin": "built from docker/node",
            },
            system: {
                "reference": f"fencepost/{system}:88ab",
                "id": "sha256:77ce" + "2" * 60,
                "origin": "built from docker/" + system,
            },
        },
        "nodes": {f"n{n}": {"role": "server", "addresses": [f"10.9.0.{n + 1}", f"fd00::{n + 1}"]} for n in (1, 2, 3)}
        | {
            f"c{n}": {"role": "contender", "addresses": [f"10.9.0.{n + 10}", f"fd00::{n + 10}"]}
            for n in range(scene.contenders)
        }
        | {"resource": {"role": "resource", "addresses": ["10.9.0.30"]}},
        "contenders": {
            str(n): {
                "node": f"c{n}",
                "holder": kind,
                "hello": {"pid": 14, "client": {"name": system, "library": "requests 2.32.3"}},
            }
            for n in range(scene.contenders)
        },
        "system": {"election_ms": 500, "heartbeat_ms": 50},
        "epoch": {"boottime_ns": 1, "utc": "2025-01-05T12:00:00.000+00:00"},
        "phases": [
            {"name": "start", "start": 0, "end": round(0.3e9)},
            {"name": "warm-up", "start": round(0.3e9), "end": round(10e9)},
            {"name": "faults", "start": round(10e9), "end": round(50e9)},
            {"name": "recovery", "start": round(50e9), "end": end},
            {"name": "take-down", "start": end, "end": end + round(2e9)},
        ],
        "outcome": {
            "word": "as-expected",
            "exit_code": 0,
            "valid": judged.get("valid"),
            "grants": judged.get("grants", 0),
            "handovers": 0,
            "reasons": [],
        },
        "expect": {},
        "error": None,
    }
    trial["outcome"]["handovers"] = _changes(lines)
    trial.update(over)
    (folder / "trial.json").write_text(json.dumps(trial, indent=2))
    return folder


def _changes(lines: list[dict[str, Any]]) -> int:
    holders = [line["process"] for line in lines if line.get("f") == "acquire" and line.get("type") == "ok"]
    return sum(a != b for a, b in itertools.pairwise(holders))

"""Aiming at the holder: no fault hits one that has not said that it holds until told; and whoever has is let go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.systems.base import Settings
from harness.trial import injector
from harness.trial.injector import TrialEnvironment
from harness.trial.recorder import Recorder
from nemesis.targets import NoTarget, resolve

S = 1_000_000_000


class Told:
    """A contender as the harness sees it: orders are kept, and answered as the test says."""

    holds_until_told = True

    def __init__(self, process: int, answer: Callable[[str, str], None]) -> None:
        self.process, self.node = process, SimpleNamespace(name=f"c{process}")
        self.orders: list[tuple[str, str]] = []
        self._answer = answer

    def order(self, word: str, **keys: Any) -> None:
        self.orders.append((word, keys["id"]))
        self._answer(word, keys["id"])

    def spare(self) -> None:
        pass


class Scene:
    """Two contenders, and a history into which the test writes."""

    def __init__(self, folder: Path) -> None:
        self.recorder = Recorder(folder, {"ttl": 2.0})
        self.now = 10 * S
        self.answers: dict[int, Callable[[str], None]] = {}
        self.contenders = [Told(process, self._answering(process)) for process in (0, 1)]
        cluster = SimpleNamespace(
            nodes={}, system=SimpleNamespace(name="theirs"), settings=Settings(2.0, 1, "image"), leader=lambda: None
        )
        acts = SimpleNamespace(opened=list)
        made: Any = TrialEnvironment
        self.env: TrialEnvironment = made(
            cluster, self.contenders, {}, None, self.recorder, lambda: self.now, acts, hold_most_seconds=60.0
        )

    def _answering(self, process: int) -> Callable[[str, str], None]:
        def answer(word: str, order: str) -> None:
            if word == "hold" and process in self.answers:
                self.answers[process](order)

        return answer

    def tell(self, process: int, type_: str, f: str, **keys: Any) -> None:
        self.recorder.event({"time": self.now, "process": process, "type": type_, "f": f, "lock": "lock", **keys})

    def grant(self, process: int) -> None:
        self.tell(process, "invoke", "acquire")
        self.tell(process, "ok", "acquire", token=1)

    def release(self, process: int) -> None:
        self.tell(process, "invoke", "release")
        self.tell(process, "ok", "release")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_holder_that_says_so_is_hit_and_let_go_when_the_fault_is_over(scene: Scene) -> None:
    """On every way out of the fault: settling is the last thing that happens to it."""
    scene.grant(0)
    scene.answers[0] = lambda order: scene.tell(0, "info", "hold", id=order, holds=True)
    assert scene.env.wait_until_told(5.0) == "c0"
    assert scene.contenders[0].orders == [("hold", "h1")]
    scene.env.settle()
    scene.env.settle()
    assert scene.contenders[0].orders == [("hold", "h1"), ("let_go", "h1")]


def test_one_that_freezes_between_the_order_and_its_answer_is_not_hit(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let go by the order that it will read next when it wakes, and the next holder is aimed at."""
    monkeypatch.setattr(injector, "ANSWER_SECONDS", 0.05)
    scene.grant(0)
    scene.answers[1] = lambda order: scene.tell(1, "info", "hold", id=order, holds=True)
    found: list[str | None] = []
    aiming = threading.Thread(target=lambda: found.append(scene.env.wait_until_told(20.0)))
    aiming.start()
    end = time.monotonic() + 60
    while len(scene.contenders[0].orders) < 2 and time.monotonic() < end:
        threading.Event().wait(0.01)
    assert scene.contenders[0].orders == [("hold", "h1"), ("let_go", "h1")]
    scene.grant(1)  # its lease ran out, and another has the lock
    aiming.join(60)
    assert found == ["c1"]


def test_one_that_is_about_to_release_is_asked_once_and_its_next_hold_again(scene: Scene) -> None:
    """It has said that it can't; what it holds next is another hold."""
    scene.grant(0)
    answers = iter([False, True])

    def answer(order: str) -> None:
        holds = next(answers)
        scene.tell(0, "info", "hold", id=order, holds=holds)
        if not holds:
            scene.release(0)
            scene.now += S
            scene.grant(0)

    scene.answers[0] = answer
    assert scene.env.wait_until_told(20.0) == "c0"
    assert scene.contenders[0].orders == [("hold", "h1"), ("hold", "h2")]


def test_nobody_who_said_it_is_a_fault_that_is_skipped(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that never answers nor one whose lease is over already; and nothing was done to anybody."""
    monkeypatch.setattr(injector, "ANSWER_SECONDS", 0.05)
    scene.grant(0)
    with pytest.raises(NoTarget, match=r"said within 0\.3 s that it would go on holding until told"):
        resolve(scene.env, "holder", None, patience=0.3)  # type: ignore[arg-type]
    assert scene.contenders[0].orders == [("hold", "h1"), ("let_go", "h1")]
    scene.now += 3 * S  # the promise was until 12 s
    assert scene.env.wait_until_told(0.1) is None
    assert len(scene.contenders[0].orders) == 2


def test_contenders_that_do_not_understand_it_are_aimed_at_as_they_are(tmp_path: Path) -> None:
    """A program of somebody else's is hit while it holds, and whether that bit is measured."""
    Told.holds_until_told, before = False, Told.holds_until_told
    try:
        scene = Scene(tmp_path)
    finally:
        Told.holds_until_told = before
    scene.grant(1)
    found = resolve(scene.env, "holder", None, patience=5.0)  # type: ignore[arg-type]
    assert found.nodes == ("c1",)
    assert scene.contenders[1].orders == []

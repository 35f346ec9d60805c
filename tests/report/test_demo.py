"""The story of the demo in words, its counts, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.report import worlds, write_demo
from harness.report.telling import Line, Teller
from tests.report.pages import page_of
from tests.workloads.test_tally import account, twice

CAME = {
    "unfenced": account(twice=2, doubled=twice(3, 4)),
    "fenced": account(refused=1),
    "idempotent": account(swallowed=2),
}


class Tale:
    """A history of the statement job, written by hand."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._seq = {"unfenced": 0, "fenced": 0}

    def say(self, seconds: float, process: int | str, f: str, type_: str, **keys: Any) -> Tale:
        time = int(seconds * 1e9)
        self.events.append({"time": time, "process": process, "type": type_, "f": f, **keys})
        return self

    def lock(self, seconds: float, process: int, token: int) -> Tale:
        self.say(seconds - 0.01, process, "acquire", "invoke")
        return self.say(seconds, process, "acquire", "ok", token=token, ttl=2.0)

    def batch(self, seconds: float, process: int, whom: str, *, refused: bool = False, swallowed: int = 0) -> Tale:
        for world in ("unfenced", "fenced"):
            keys = {"resource": world, "id": f"{process}-{seconds}", "month": 1, "customers": whom}
            self.say(seconds, process, "write", "invoke", **keys)
            if refused and world == "fenced":
                self.say(seconds, process, "write", "fail", resource=world, error="stale")
            else:
                self._seq[world] += 1
                self.say(seconds, process, "write", "ok", **keys, seq=self._seq[world])
        keys = {"world": "idempotent", "month": 1, "customers": whom}
        self.say(seconds, process, "send", "invoke", **keys)
        return self.say(seconds, process, "send", "ok", **keys, swallowed=swallowed)

    def pause(self, seconds: float, phase: str, process: int, receipt: str) -> Tale:
        hit = {"processes": [process], "targets": [f"c{process}"]} if phase == "start" else {}
        keys = {"id": "f1", "kind": "freeze", "phase": phase, "receipt": receipt, **hit}
        return self.say(seconds, "nemesis", "fault", "info", **keys)

    def told(self) -> list[Line]:
        teller = Teller()
        return [line for event in self.events for line in teller.tell(event)]


def famous() -> Tale:
    """Paused with 3-4 rendered, overtaken, awake, twice."""
    tale = Tale().lock(1.0, 0, 1).batch(1.5, 0, "1-2").pause(2.0, "start", 0, "landed").lock(4.0, 1, 2)
    tale.batch(4.5, 1, "3-4").pause(6.0, "stop", 0, "undone").batch(6.1, 0, "3-4", refused=True, swallowed=2)
    tale.say(6.2, 0, "release", "invoke").say(6.3, 0, "release", "fail", held=False)
    return tale.batch(6.5, 1, "5-6").say(7.0, 1, "release", "invoke").say(7.1, 1, "release", "ok")


def test_the_famous_story_is_told_in_plain_words() -> None:
    """Who had the lock, who was paused, what came of it; and nothing of batches of which there is nothing to say."""
    assert [(line.seconds, line.world, line.text) for line in famous().told()] == [
        (1.0, None, "c0 gets the lock, with token 1."),
        (2.0, None, "c0 has sent customers 1-2."),
        (
            2.0,
            None,
            "PAUSE: c0 stands still, with the lock and a batch half rendered, as in a long garbage collection.",
        ),
        (4.0, None, "The lease of c0 has run out, and c1 gets the lock, with token 2."),
        (6.0, None, "c1 has sent customers 3-4."),
        (6.0, None, "c0 WAKES. It knows of no pause, and goes on where it stood."),
        (6.1, None, "c0 sends customers 3-4, which it had rendered."),
        (6.1, "unfenced", "takes them: these 2 customers now have two"),
        (6.1, "fenced", "refuses the batch: token 1 is older than 2"),
        (6.1, "idempotent", "swallows 2: they have theirs"),
        (6.2, None, "c0 is done, and gives back a lock that it has no longer."),
        (7.0, None, "c1 has sent customers 5-6 and gives the lock back."),
    ]


def test_a_holder_that_was_told_to_wait_wakes_when_it_goes_on() -> None:
    """The pause ends by the node's clock before others act; told in the order of the clock, it never goes backwards."""
    tale = Tale().lock(1.0, 0, 1).say(1.9, 0, "hold", "info", id="h1", holds=True).pause(2.0, "start", 0, "landed")
    tale.lock(4.0, 1, 2).lock(6.5, 2, 3).pause(6.0, "stop", 0, "undone").say(7.0, 0, "let_go", "info", id="h1")
    told = tale.batch(7.1, 0, "1-2").say(7.5, 0, "release", "invoke").told()
    assert [line.seconds for line in told] == sorted(line.seconds for line in told)
    assert [line.seconds for line in told if "WAKES" in line.text] == [7.0]


def test_whoever_sends_before_the_end_of_the_pause_is_told_wakes_with_it() -> None:
    """The harness tells of that end once it has seen what the holder does, so what it says wakes it, and once."""
    tale = Tale().lock(1.0, 0, 1).say(1.9, 0, "hold", "info", id="h1", holds=True).pause(2.0, "start", 0, "landed")
    tale.say(2.01, 0, "renew", "invoke").lock(4.0, 1, 2).batch(6.01, 0, "1-2").pause(6.0, "stop", 0, "undone")
    told = [line for line in tale.say(6.2, 0, "let_go", "info", id="h1").told() if "c0" in line.text]
    assert [line.seconds for line in told if "WAKES" in line.text] == [6.01]


def test_only_what_was_sent_twice_is_counted_as_such() -> None:
    """A batch of which a part is new, in a world each."""
    tale = Tale().lock(1.0, 0, 1).batch(1.5, 0, "1-4").batch(2.0, 0, "4-6", swallowed=1)
    answers = {line.world: line.text for line in tale.told() if line.world}
    assert answers == {
        "unfenced": "takes them: 1 of these 3 customers now have two",
        "fenced": "takes them",
        "idempotent": "swallows 1: they have theirs, and takes the other 2",
    }


def test_a_pause_that_hit_nobody_and_a_guarded_holder_are_told_as_such() -> None:
    """The words of the story are for what happened alone."""
    tale = Tale().lock(1.0, 0, 1).say(2.0, "nemesis", "fault", "info", id="f1", phase="start", reason="nobody held it")
    tale.say(3.0, 0, "lost", "info", reason="deadline").lock(4.0, 1, 2).lock(5.0, 0, 3)
    assert [line.text for line in tale.told()] == [
        "c0 gets the lock, with token 1.",
        "The pause did not come about: nobody held it.",
        "c0 sees that its lease is over, and stops.",
        "c1 gets the lock, with token 2.",
        "c0 gets the lock, with token 3, while c1 has it, too.",
    ]


def test_the_story_came_out_only_if_all_three_worlds_show_it() -> None:
    """A pause that missed is no demonstration, and a world that fails is worse than none."""
    assert worlds.otherwise(CAME) == []
    none = {world: account() for world in CAME}
    assert len(worlds.otherwise(none)) == 3
    assert "did not hit a batch" in worlds.otherwise(none)[0]
    doubled = CAME | {"fenced": account(twice=1, doubled=twice(3), refused=1)}
    assert worlds.otherwise(doubled) == ["fenced: 1 customer got two statements (3)"]
    assert worlds.otherwise({}) == ["nothing was sent to the unfenced and the fenced and the idempotent world"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trial's folder as the demo leaves it."""
    meta = {"type": "meta", "format": 1, "ttl": 2.0}
    lines = [meta, *sorted(famous().events, key=lambda event: event["time"])]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "trial.json").write_text(json.dumps({"id": "t", "tally": {"counted": CAME, "words": []}}))
    return tmp_path


def test_the_page_has_the_counts_the_story_and_the_timeline(folder: Path) -> None:
    """One file: what became of the job in each world, and how it came to that."""
    page = page_of(write_demo(folder))
    assert "2 customers got two statements customers 3-4" in page.text
    assert "0 customers got two statements 1 batch refused" in page.text
    assert "0 customers got two statements 2 statements swallowed" in page.text
    for line in famous().told():
        assert line.text in page.text
    assert "believes past what the service promised" in page.text
    flags = {str(attributes["href"]) for tag, attributes in page.tags if tag == "a"}
    assert "#exclusion-1" in flags
    assert {flag[1:] for flag in flags if flag.startswith("#")} <= page.ids()  # each leads to what it stands for
    assert page.scripts <= 1


def test_a_page_without_a_count_is_not_made(folder: Path) -> None:
    """Noughts that nobody counted would be a story that nobody saw."""
    (folder / "trial.json").write_text(json.dumps({"id": "t"}))
    with pytest.raises(ConfigError, match="nobody counted"):
        write_demo(folder)
    (folder / "trial.json").write_text(json.dumps({"id": "t", "tally": {"counted": {"fenced": {}}}}))
    with pytest.raises(ConfigError, match="no account of a mail room"):
        write_demo(folder)

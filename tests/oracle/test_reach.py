"""The random histories reach every sentence: a reading that gets one of them wrong judges one of them differently.

A comparison of two readings is worth as much as the histories that both are given. So each sentence here is broken in a
copy of the oracle, and the histories must tell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from tests.oracle.generate import Chooser, encode, history
from tests.oracle.malformed import corrupt

HERE = Path(__file__).parent
#: In the order in which they import each other.
MODULES = ("reading", "intervals", "said", "conduct", "progress", "writes", "verdicts")
HISTORIES = 15_000
#: Those that have told the mistakes before. They are looked at first, and all the others after them where none tells:
#: which they are costs or saves time, and decides nothing.
TELLING = (
    4235, 5, 292, 305, 143, 23, 2, 232, 560, 601, 3432, 168, 1024, 496, 5240, 386, 230, 199, 2027, 1750, 66, 283, 948,
    68, 1018, 114, 678, 235, 6108, 5675, 133, 4, 37, 28, 1169, 146, 18, 276, 116, 42, 54, 461, 2211, 644, 99, 762, 723,
)  # fmt: skip

#: A name, the module, what stands there once, and what a reader with that mistake would have written.
MISTAKES = (
    ("one from outside is active though skipped", "reading", 'and self.receipt != "skipped"', ""),
    ("the stop's kind counts", "reading", 'self.start.get("kind") == "outside"',
     '(self.stop or self.start).get("kind") == "outside"'),
    ("what has no default", "reading", 'in (None, "paused")', 'in ("paused",)'),
    ("all that is from outside freezes", "reading", 'return self.start.get("what") in (None, "paused")', "return True"),
    ("an audit is an event like others", "reading", 'for event in self.events if event.f != "audit"',
     "for event in self.events"),
    ("a missing end is no cut", "reading", "[keys[\"events\"] for _, keys in ends] != [len(history.events)]",
     "[keys[\"events\"] for _, keys in ends] not in ([], [len(history.events)])"),
    ("a wrong end is no cut", "reading", "[keys[\"events\"] for _, keys in ends] != [len(history.events)]", "not ends"),
    ("an end without a promise", "reading", "number != last or not promised", "number != last"),
    ("an end in the middle", "reading", "number != last or not promised", "not promised"),
    ("seq on the invoke", "reading", 'self.completion.get("seq")', 'self.key("seq")'),
    ("equal seq in the fenced resource alone", "reading", 'one.outcome == other.outcome == "ok" and one.seq',
     'one.outcome == other.outcome == "ok" and one.invoke.get("resource") == "fenced" and one.seq'),
    ("ids of accepted writes alone", "reading", 'one.key("id") is not None and',
     'one.key("id") is not None and one.outcome == other.outcome == "ok" and'),
    ("ids of all resources", "reading",
     '(one.lock, one.invoke.get("resource")) == (other.lock, other.invoke.get("resource"))', "one.lock == other.lock"),
    ("ids of all locks", "reading",
     '(one.lock, one.invoke.get("resource")) == (other.lock, other.invoke.get("resource"))',
     'one.invoke.get("resource") == other.invoke.get("resource")'),
    ("integers and strings", "reading", "len(kinds) > 1", "len(kinds) > 2"),
    ("the ids of audits may be others", "reading", 'event.get("ids") if event.f == "audit" else []', "[]"),
    ("a second audit", "reading", '(one.lock, one.get("resource")) == (other.lock, other.get("resource"))', "False"),
    ("a truth value is an id", "reading", "_integer(value) or isinstance(value, str)", "isinstance(value, int | str)"),
    ("a renew that proves nothing is ok", "intervals", 'op.f == "renew" and outcome == "ok" and not proves', "False"),
    ("a release that proves nothing is unknown", "intervals", 'op.f == "renew" and outcome == "ok" and not proves',
     'outcome == "ok" and not proves'),
    ("an ok that proves nothing proves", "intervals", 'if each.outcome == "ok" and each.proves',
     'if each.outcome == "ok"'),
    ("a late ok has no ttl", "intervals", 'if op.outcome == "ok" else op.invoke', 'if outcome == "ok" else op.invoke'),
    ("any completion has a ttl", "intervals", 'op.key("ttl") if op.outcome == "ok" else op.invoke.get("ttl")',
     'op.key("ttl")'),
    ("solid within the uncertainty", "intervals", "self.ok + self.history.uncertainty <= self.L", "self.ok <= self.L"),
    ("not solid at the uncertainty", "intervals", "self.ok + self.history.uncertainty <= self.L",
     "self.ok + self.history.uncertainty < self.L or (self.ok == self.L and not self.history.uncertainty)"),
    ("the latest end counts from the invoke", "intervals",
     "renew.invoke.time if renew.answered is None else renew.answered.time",
     "renew.invoke.time"),
    ("the latest end counts from renews that are ok", "intervals", 'for each in renews if each.outcome != "fail"',
     'for each in renews if each.outcome == "ok"'),
    ("the latest end has the least ttl", "intervals", "nanoseconds(max(ttls))", "nanoseconds(min(ttls))"),
    ("the latest end on a clock that is fast", "intervals",
     "nanoseconds(max(ttls)) * (1 + Fraction", "nanoseconds(max(ttls)) * (1 - Fraction"),
    ("the latest end ignores belief", "intervals", "        instants.append(grant.belief_end)", "        pass"),
    ("the latest end is belief's", "intervals", "    if grant.unseen:\n", "    if True:\n"),
    ("no latest end without a ttl", "intervals", "return INFINITE if grant.unseen else None", "return None"),
    ("no end without a ttl", "intervals", "return INFINITE if grant.unseen else None", "return INFINITE"),
    ("an ended lease that never expires", "intervals",
     '        return INFINITE\n    instants', '        return None\n    instants'),
    ("revived without proof", "verdicts", "and own.proves and after", "and after"),
    ("ended and revived at one instant", "verdicts", "own.invoke.position > a.ended.position",
     "own.invoke.time >= a.ended.time"),
    ("unseen renewals hide nothing", "verdicts", "2 * solid < len(found) or hidden", "2 * solid < len(found)"),
    ("unseen renewals hide also where it is a finding", "verdicts", "2 * solid < len(found) or hidden",
     "2 * solid < len(found) or any(_unseen(a, b) for a, b in _pairs(found))"),
    ("unseen of the earlier one alone", "verdicts", "a.unseen or (b.unseen and b.late)", "a.unseen"),
    ("unseen of either one", "verdicts", "a.unseen or (b.unseen and b.late)", "a.unseen or b.unseen"),
    ("late before unseen", "verdicts", "    if _unseen(a, b):\n", "    if _unseen(a, b) and not (a.late or b.late):\n"),
    ("an empty list requires nothing", "verdicts", "if not required:", "if required is None:"),
    ("a false one is not required", "verdicts", ' or verdicts["fenced"].valid is False', ""),
    ("a cut is no doubt", "verdicts", "    if history.cut_off and not partial:\n        for",
     "    if False:\n        for"),
    ("gone before the very instant", "writes", "history.uncertainty <= audit.time", "history.uncertainty < audit.time"),
    ("gone within the uncertainty", "writes", "done(op).time + history.uncertainty <=", "done(op).time <="),
    ("gone whenever", "writes", 'op.outcome == "ok" and done(op).time + history.uncertainty <= audit.time',
     'op.outcome == "ok"'),
    ("the id of the invoke", "writes", 'there = op.key("id")', 'there = op.invoke.get("id")'),
    ("a ghost is looked for in time", "writes", 'elif op.outcome == "fail":',
     'elif op.outcome == "fail" and done(op).time + history.uncertainty <= audit.time:'),
    ("an audit of all locks", "writes", "or op.lock != audit.lock", ""),
    ("an audit of both resources", "writes",
     'op.lock != audit.lock or op.invoke.get("resource") != resource', "op.lock != audit.lock"),
    ("in order of time, not of seq", "writes", "if all(op.seq is not None for op in writes)", "if False"),
    ("a write that was refused is unheld", "conduct", 'for op in writes if op.outcome != "fail"', "for op in writes"),
    ("only accepted writes are unheld", "conduct", 'for op in writes if op.outcome != "fail"',
     'for op in writes if op.outcome == "ok"'),
    ("belief of any lock", "conduct", "grant.process == op.process and grant.lock == op.lock",
     "grant.process == op.process"),
    ("a write at the instant of its grant", "conduct", "grant.ok_event.position < position", "grant.ok < 0"),
    ("a write at the end of the belief", "conduct", "position < grant.belief_ended_by.position", "True"),
    ("why: the belief's end alone", "conduct", "if event is not None]\n    before", "if False]\n    before"),
    ("why: an acquire's completion alone", "conduct", "for event in (op.invoke, op.completion)",
     "for event in (op.completion,)"),
    ("why: any acquire", "conduct", 'op.lock == write.lock and op.outcome != "ok"', "op.lock == write.lock"),
    ("a refused renew is a stray", "conduct", 'op.f == "renew" and op.outcome == "ok"',
     'op.f == "renew" and op.completion is not None'),
    ("before any grant it is none", "conduct", "        return True, None", "        return False, None"),
    ("only an own release gives up", "conduct", 'event.f == "release" and event.type == "invoke"',
     'event.f == "release" and event in [own.invoke for own in last.own]'),
    ("a crash gives nothing up", "conduct", 'if release or event.f == "crash"', "if release"),
    ("a ttl after the lost is too late", "conduct", "> nanoseconds(last.ttl), lost", ">= nanoseconds(last.ttl), lost"),
    ("at once after the lost", "conduct", "> nanoseconds(last.ttl), lost", "> 0, lost"),
    ("without a ttl at once", "conduct", " or last.ttl is None:\n        return False, None\n",
     ":\n        return False, None\n    if last.ttl is None:\n        return True, lost\n"),
    ("one finding a process", "conduct", "-1 if last is None else last.ok_event.position)", "0)"),
    ("without owners too", "conduct", 'history.setting("owners", True) is False', "False"),
    ("true without a grant", "conduct", "unknown=not found", "unknown=False"),
    ("outside hides nothing", "progress", "unknown=not tried or hidden", "unknown=not tried"),
    ("any outside hides", "progress", "unknown=not tried or hidden",
     "unknown=not tried or len(ours) < len(history.faults)"),
    ("to the promise, not the latest end", "progress", "for latest in (a.latest,)", "for latest in (a.promise,)"),
    ("ended doesn't count", "progress", "for event in (a.ended,) if event is not None", "for event in ()"),
    ("proof doesn't count", "progress", "if a.proven is not None:", "if False:"),
    ("an ended one with no latest end", "progress", "        if free:", "        if free and a.latest is not None:"),
    ("one from outside must be undone", "progress", "if not fault.outside and not fault.undone", "if not fault.undone"),
    ("one from outside is no doubt", "progress", "if unproven or outside else True", "if unproven else True"),
    ("bit of skipped ones", "progress", "for fault in counted if fault.stop is not None]",
     "for fault in history.faults if fault.stop is not None]"),
)  # fmt: skip


@cache
def compiled(module: str, old: str = "", new: str = "") -> CodeType:
    """A module of the oracle, with one thing replaced that stands in it once."""
    source = (HERE / f"{module}.py").read_text()
    if old:
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module}"
        source = source.replace(old, new)
    return compile(source.replace("from tests.oracle.", "from mistaken."), f"mistaken/{module}.py", "exec")


def load(name: str = "", old: str = "", new: str = "") -> tuple[ModuleType, ModuleType]:
    """A copy of the oracle with one mistake: its `reading` and its `verdicts`."""
    for module in MODULES:
        copy = ModuleType(f"mistaken.{module}")
        sys.modules[copy.__name__] = copy
        exec(compiled(module, old, new) if module == name else compiled(module), copy.__dict__)
    return sys.modules["mistaken.reading"], sys.modules["mistaken.verdicts"]


def said(oracle: tuple[ModuleType, ModuleType], data: bytes) -> Any:
    """All that the comparison with the checkers looks at."""
    reading, verdicts = oracle
    try:
        history = reading.read(data)
    except reading.Malformed as error:
        return error.lines
    return [
        (
            judgement.valid,
            judgement.required,
            {
                name: (
                    verdict.valid,
                    verdict.stats,
                    sorted(
                        (f.kind, str(f.lock), sorted(f.lines), str(f.blame), str(f.seconds)) for f in verdict.findings
                    ),
                )
                for name, verdict in judgement.verdicts.items()
            },
        )
        for judgement in (verdicts.judge(history), verdicts.judge(history, partial=True))
    ]


@pytest.fixture(scope="module")
def right() -> Callable[[], Iterator[tuple[bytes, Any]]]:
    """Random histories, one in eight malformed, with what is rightly said of them; made as they are needed."""
    oracle = load()

    @cache
    def made(number: int) -> tuple[bytes, Any]:
        choices = Chooser.seeded(70_000 + number)
        events = history(choices)
        data = corrupt(choices, events) if number % 8 == 0 else encode(events)
        return data, said(oracle, data)

    def histories() -> Iterator[tuple[bytes, Any]]:
        return (made(number) for number in chain(TELLING, range(HISTORIES)))

    return histories


@pytest.mark.parametrize(("module", "old", "new"), [mistake[1:] for mistake in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_shows(right: Callable[[], Iterator[tuple[bytes, Any]]], module: str, old: str, new: str) -> None:
    """At least one of the random histories is judged otherwise by a reader with this mistake."""
    mistaken = load(module, old, new)
    for data, expected in right():
        if said(mistaken, data) != expected:
            return
    pytest.fail("the random histories don't reach it")

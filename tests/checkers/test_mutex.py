"""Without owners: a plain mutex, decided by one sweep, as an exhaustive search decides it."""

from __future__ import annotations

import random
from typing import Any

from checkers import judge, mutex
from checkers.intervals import build
from harness.history.events import History
from tests.checkers.make import S, make


def exhaustive(operations: mutex._Operations) -> bool:
    """Tries every order: an operation may be next when the state fits, its window allows, and its own came before."""
    n = len(operations.needs)
    sure = {i for i in range(n) if operations.ret[i] != float("inf")}

    def place(placed: tuple[int, ...], now: float) -> bool:
        if sure <= set(placed):
            return True
        for i in range(n):
            at = max(now, operations.invoke[i])
            before = operations.before[i]
            if (
                i not in placed
                and operations.needs[i] == len(placed) % 2
                and at <= operations.ret[i]
                and (before < 0 or before in placed)
                and place((*placed, i), at)
            ):
                return True
        return False

    return place((), float("-inf"))


def random_mutex(seed: int) -> History:
    rng = random.Random(seed)
    events: list[tuple[Any, ...]] = []
    for process in range(rng.randint(1, 3)):
        now = rng.randint(0, 3)
        for _ in range(rng.randint(1, 3)):
            f = rng.choice(["acquire", "release"])
            events.append((now, process, f"invoke {f}"))
            outcome = rng.choice(["ok", "ok", "ok", "info", "fail", ""])
            now += rng.randint(0, 3)
            if outcome:
                events.append((now, process, f"{outcome} {f}"))
            else:
                events.append((now, process, "info crash"))
            now += rng.randint(0, 2)
    events.sort(key=lambda event: event[0])
    return make(*events, owners=False, uncertainty=rng.choice([0, 0, 1, 2]))


def test_it_answers_as_an_exhaustive_search_does() -> None:
    """Ties, uncertainty and unknown outcomes included; and an order that was found replays."""
    answers = []
    for seed in range(2000):
        model = build(random_mutex(seed))
        ((_, rows),) = mutex._by_lock(model)
        operations = mutex._operations(model, rows)
        answer, outcome = mutex.decide(operations)
        assert answer is exhaustive(operations), seed
        answers.append(answer)
        if answer is True:
            replay(operations, outcome)
    assert 250 < answers.count(True) < 1750


def replay(operations: mutex._Operations, outcome: mutex._Outcome) -> None:
    state, now, placed = 0, float("-inf"), set()
    for i, time in outcome.order:
        assert operations.needs[i] == state
        assert max(now, operations.invoke[i]) <= time <= operations.ret[i]
        assert operations.before[i] < 0 or operations.before[i] in placed
        placed.add(i)
        state, now = 1 - state, time
    assert all(i in placed for i, ret in enumerate(operations.ret) if ret != float("inf"))


def test_own_operations_come_in_their_own_order() -> None:
    """A release that was invoked when the same process's acquire had returned can't have gone before it, though both
    lie at one instant; another process's could."""
    before = [(4, 1, "invoke acquire"), (4, 1, "ok acquire"), (8, 1, "invoke acquire"), (9, 1, "ok acquire")]
    own = make(*before, (9, 1, "invoke release"), (9, 1, "ok release"), owners=False)
    others = make(*before, (9, 2, "invoke release"), (9, 2, "ok release"), owners=False)
    assert judge(own).verdicts["linearizable"].valid is False
    assert judge(others).verdicts["linearizable"].valid is True


def test_the_finding_names_who_is_in_the_way() -> None:
    """The operation without a place, and the one that left the mutex as it was; as a certificate, their stamps."""
    history = make(
        (0, 0, "invoke acquire"), (1, 0, "ok acquire"), (2, 1, "invoke acquire"), (3, 1, "ok acquire"), owners=False
    )  # fmt: skip
    (finding,) = judge(history, certificates=True).verdicts["linearizable"].findings
    assert finding.kind == "no-order"
    assert finding.events == (3, 4, 5)
    assert finding.certificate is not None
    assert [row["ok"] for row in finding.certificate["operations"]] == [S, 3 * S]


def test_owner_verdicts_are_unknown_and_not_required() -> None:
    """Without owners exclusion, lease and fencing can't be known; the rest still is."""
    history = make((0, 0, "invoke acquire"), (1, 0, "ok acquire", {"token": 1}), ttl=5)
    judgement = judge(history, owners=False)
    assert judgement.required == ("linearizable", "faults")
    assert {name for name, verdict in judgement.verdicts.items() if verdict.valid == "unknown"} >= {
        "exclusion", "lease", "fencing",
    }  # fmt: skip
    assert judgement.valid is True


def test_the_search_gives_up_within_its_bound() -> None:
    """Where it needs a search that is too long the answer is unknown, not an answer after hours."""
    events: list[tuple[Any, ...]] = []
    for i in range(40):
        events.append((0, i, "invoke acquire" if i % 2 else "invoke release"))
    events += [(1, 0, "ok release"), (1, 0, "invoke acquire"), (1, 1, "ok acquire"), (1, 0, "ok acquire")]
    model = build(make(*events, owners=False, uncertainty=2))
    ((_, rows),) = mutex._by_lock(model)
    operations = mutex._operations(model, rows)
    answer, _ = mutex._search(operations)
    assert answer in (True, "unknown")

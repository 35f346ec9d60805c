"""The examination of an adapter: a right one keeps every rule, and one that breaks a rule is told exactly that one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.server import ADAPTER, LockServer
from tests.adapters.stage import paper
from tests.adapters.test_client import BREACHES
from workloads.adapters.examine import ALONE, SERVED, Broken, Examination, Subject, against_nothing
from workloads.adapters.wire import RULES

PATIENT = 1.0
"""The deadline of an operation, in s: a busy machine answers within it."""


@pytest.fixture
def server() -> Iterator[LockServer]:
    made = LockServer()
    yield made
    made.close()


def subject(tmp_path: Path, body: str, port: int = 1, **options: Any) -> Subject:
    own = {"command": paper(tmp_path, body), "options": options, "patience_seconds": 5.0}
    return Subject(own, 1.0, [["127.0.0.1", port]], operation=PATIENT)


@pytest.mark.parametrize("told", [False, True], ids=["asked", "told"])
def test_a_right_adapter_keeps_every_rule(tmp_path: Path, server: LockServer, told: bool) -> None:
    """Against nothing and with its service, whether it renews when asked or by itself."""
    right = subject(tmp_path, ADAPTER, server.port, told=told)
    assert against_nothing(right).library == "paper 1 (Python)"
    Examination(right, server).run()


def test_every_rule_has_an_adapter_that_breaks_it() -> None:
    """A rule of which nobody has seen that it is enforced is none."""
    assert set(BREACHES) | {"starts"} == set(RULES)
    assert set(WRONG) == set(ALONE) | set(SERVED)


@pytest.mark.parametrize("rule", ["starts", *BREACHES])
def test_a_breach_of_the_protocol_is_named(tmp_path: Path, rule: str) -> None:
    """Whatever else would have been looked at."""
    command = ["/nowhere/lock"] if rule == "starts" else paper(tmp_path, BREACHES[rule])
    wrong = Subject({"command": command, "patience_seconds": 0.1}, 1.0, [["n1", 1]], operation=0.1)
    with pytest.raises(Broken) as caught:
        against_nothing(wrong)
    assert caught.value.rule == rule


WRONG = {rule: rule in ("tells-renewals", "frozen-between-write-and-read") for rule in (*ALONE, *SERVED)}
"""Rule -> whether the adapter that breaks it renews by itself."""


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_adapter_is_told_what_it_breaks(tmp_path: Path, server: LockServer, rule: str) -> None:
    """Exactly that, of all the rules."""
    wrong = subject(tmp_path, ADAPTER, server.port, wrong=rule, told=WRONG[rule])
    with pytest.raises(Broken) as caught:
        _ = against_nothing(wrong) if rule in ALONE else Examination(wrong, server).run({rule}, tries=1)
    assert caught.value.rule == rule, caught.value

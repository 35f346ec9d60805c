"""A program that is kept running to be asked, without a node: its end, and who asks in the midst of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import AgentError
from harness.trial.conversation import Conversation


class Program:
    """Answers each question with itself."""

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self.on_line, self.code = on_line, None

    def send(self, data: bytes) -> None:
        for line in data.splitlines():
            self.on_line(line)

    def wait(self, seconds: float) -> int | None:
        return self.code

    def abandon(self) -> None:
        self.code = 0  # type: ignore[assignment]


def conversation(before_start: Callable[[], None] = lambda: None) -> tuple[Conversation, list[Program]]:
    programs: list[Program] = []

    def spawn(argv: Any, *, on_line: Callable[[bytes], None], **others: Any) -> Program:
        before_start()
        programs.append(Program(on_line))
        return programs[-1]

    node: Any = SimpleNamespace(name="n1", spawn=spawn)
    return Conversation(node, "redis", ["redis-cli"], {}), programs


def test_one_that_has_ended_is_started_again() -> None:
    """With the next question."""
    talk, programs = conversation()
    assert talk.ask("one\ntwo\n", "two", 5) == ["one"]
    programs[0].abandon()
    assert talk.ask("three\nfour\n", "four", 5) == ["three"]
    assert len(programs) == 2


def test_once_closed_nothing_is_started() -> None:
    """A question that waited for its turn meanwhile would leave a program behind, on a node that is to be removed."""
    talk, programs = conversation()
    talk.ask("one\n", "one", 5)
    talk.close()
    with pytest.raises(AgentError, match="redis-cli on n1 is asked nothing any more"):
        talk.ask("two\n", "two", 5)
    assert [each.code for each in programs] == [0]


def test_one_that_is_closed_while_it_starts_does_not_run_on() -> None:
    """Whoever closed it had nothing to end."""
    talk, programs = conversation(lambda: talk.close())
    with pytest.raises(AgentError, match="asked nothing any more"):
        talk.ask("one\n", "one", 5)
    assert [each.code for each in programs] == [0]

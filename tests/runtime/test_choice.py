"""Which runtime is taken where nobody says, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from harness import registry
from harness.cli import cli
from harness.errors import RuntimeUnavailable, UsageError
from harness.runtime import choice


class Here:
    """A runtime that can be used."""

    name = "here"


def absent(reason: str) -> Any:
    def construct() -> Any:
        raise RuntimeUnavailable(reason)

    return construct


def runtimes(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    monkeypatch.setattr(registry, "load", lambda kind, name: found[name])


def test_an_engine_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes(monkeypatch, docker=Here, local=absent("never asked"))
    assert choice.choose("auto").words == "docker, since an engine answers"


def test_without_an_engine_it_is_this_machine_and_why_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes(monkeypatch, docker=absent("Docker can't be reached: no socket"), local=Here)
    chosen = choice.choose("auto")
    assert isinstance(chosen.runtime, Here)
    assert chosen.words == "local, since Docker can't be reached: no socket"


def test_what_is_asked_for_by_name_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes(monkeypatch, docker=absent("no engine"), local=Here)
    with pytest.raises(RuntimeUnavailable, match=r"^no engine$"):
        choice.choose("docker")
    assert choice.choose("local").words == "local"


def test_where_nothing_can_be_used_every_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes(monkeypatch, docker=absent("no engine"), local=absent("no namespaces"))
    with pytest.raises(RuntimeUnavailable, match=r"can be used here:\n- docker: no engine\n- local: no namespaces"):
        choice.choose("auto")


def test_an_unknown_name_is_told_with_all_that_can_be_asked_for() -> None:
    with pytest.raises(UsageError, match=r"podman.*known: auto, docker, local"):
        choice.choose("podman")
    with pytest.raises(UsageError, match=r"did you mean 'auto'\?"):
        choice.choose("atuo")


def test_the_environment_names_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_RUNTIME", "nowhere")
    result = CliRunner().invoke(cli, ["run", "redis"])
    assert isinstance(result.exception, UsageError)
    assert "nowhere" in str(result.exception)

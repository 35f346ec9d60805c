"""The wrapper around a lock client: what it lets through, and what it refuses with a list of problems."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workloads.scripted import Scripted
from workloads.clients.base import (
    Acquired,
    Answered,
    Checked,
    ClientConfig,
    MalformedAnswer,
    NoLock,
    classify,
)
from workloads.clocks import Flag, Stamp


def config(**changes: Any) -> ClientConfig:
    values: dict[str, Any] = {
        "settings": {"endpoints": [["n1", 1], ["n2", 1], ["n3", 2]]},
        "lock": "lock",
        "ttl_seconds": 2.0,
        "process": 0,
        "operation_seconds": 0.5,
        "on_lost": lambda reason: None,
    }
    return ClientConfig(**{**values, **changes})


def scripted(**script: Any) -> Checked:
    client = Scripted(config())
    client.script = script
    return Checked(client)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("ok", "must be an Acquired"),
        (Acquired("yes"), "type must be one of"),  # type: ignore[arg-type]
        (Acquired("ok", "7", 2.0, Stamp.now()), "token must be an integer"),  # type: ignore[arg-type]
        (Acquired("ok", True, 2.0, Stamp.now()), "token must be an integer"),
        (Acquired("ok", 7, None, Stamp.now()), "ttl_seconds must be a number"),
        (Acquired("ok", 7, 0, Stamp.now()), "ttl_seconds must be a number above 0"),
        (Acquired("ok", 7, 2.0), "since is missing"),
        (Acquired("ok", 7, 2.0, Stamp(0, 0.0)), "since must lie between"),
        (Acquired("ok", 7, 2.0, Stamp(2**62, 0.0)), "since must lie between"),
        (Acquired("fail"), "needs an error text"),
    ],
)
def test_a_malformed_acquire_is_refused(answer: Any, words: str) -> None:
    """Each problem is named."""
    with pytest.raises(MalformedAnswer, match=words):
        scripted(acquire=lambda: answer).acquire(1.0, Flag())


@pytest.mark.parametrize("operation", ["renew", "release"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "must be an Answered"),
        (Answered("maybe", error="?"), "type must be one of"),  # type: ignore[arg-type]
        (Answered("info"), "needs an error text"),
        (Answered("ok", held=False), "held belongs to a fail"),
        (Answered("fail", held=True, error="?"), "held can only be False or None"),
        (Answered("fail", proves=False, error="?"), "proves belongs to an ok, not to fail"),
        (Answered("ok", proves=None), "proves must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_answer_is_refused(operation: str, answer: Any, words: str) -> None:
    """Each problem is named, with the operation."""
    with pytest.raises(MalformedAnswer, match=f"{operation}.*{words}"):
        getattr(scripted(**{operation: lambda: answer}), operation)()


def test_all_problems_are_listed() -> None:
    """Not only the first."""
    with pytest.raises(MalformedAnswer) as raised:
        scripted(acquire=lambda: Acquired("ok")).acquire(1.0, Flag())
    assert len(raised.value.problems) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"errors": {}}, "no '\\*'"),
        ({"errors": {"*": "info", "boom": "lost"}}, "'boom'.* is 'lost'"),
        ({"renew_every_seconds": 0}, "above 0"),
        ({"has_tokens": None}, "has_tokens must be True or False, not None"),
        ({"expires": 0}, "expires must be True or False, not 0"),
        ({"renewals_seen": "yes"}, "renewals_seen must be True or False, not 'yes'"),
    ],
)
def test_a_client_without_its_tables_is_refused(changes: dict[str, Any], words: str) -> None:
    """When it is made, not in the middle of a trial."""
    client = Scripted(config())
    for name, value in changes.items():
        setattr(client, name, value)
    with pytest.raises(MalformedAnswer, match=words):
        Checked(client)


def test_what_a_client_leaves_out_is_the_usual_case() -> None:
    """Tokens, every renewal told, and leases that end: a client has to say when it is otherwise."""
    client = scripted()
    assert client.has_tokens
    assert client.renewals_seen
    assert client.expires


def test_a_token_of_a_lock_without_tokens_is_refused() -> None:
    """A trial that requires no fencing because of what its client said would not look at it."""
    client = Scripted(config())
    client.has_tokens = False  # type: ignore[attr-defined]
    with pytest.raises(MalformedAnswer, match=r"a token .* from a client whose has_tokens is False"):
        Checked(client).acquire(1.0, Flag())


def test_the_noop_passes_its_own_checks() -> None:
    """The lock that locks nothing is a proper client."""
    lock = Checked(NoLock(config()))
    assert lock.connect(1.0) is None
    answer = lock.acquire(1.0, Flag())
    assert (answer.type, answer.token, answer.ttl_seconds) == ("ok", None, 2.0)
    for answer in (lock.renew(), lock.release()):
        assert (answer.type, answer.proves) == ("ok", False)  # nobody was asked
    assert not lock.doubtful
    lock.close()


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("boom", "info"), ("connect: refused", "fail"), ("connect later", "ok"), ("", "info")],
)
def test_the_longest_key_of_the_table_decides(kind: str, outcome: str) -> None:
    """Keys are beginnings of error texts."""
    assert classify({"*": "info", "connect": "fail", "connect later": "ok"}, kind) == outcome


def test_each_contender_starts_at_a_server_of_its_own() -> None:
    """And goes on in the same order, round."""
    orders = [[host for host, _ in config(process=number).endpoints()] for number in range(4)]
    assert orders == [["n1", "n2", "n3"], ["n2", "n3", "n1"], ["n3", "n1", "n2"], ["n1", "n2", "n3"]]

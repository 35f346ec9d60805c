"""What contenders asked for and what came of it, as faults see it in a running trial."""

from __future__ import annotations

from harness.trial.live import LiveState

S = 1_000_000_000
NODES = {0: "c0", 1: "c1"}


def told(*events: tuple[float, int, str, str, dict[str, object]]) -> LiveState:
    """A live state that has heard these: (seconds, process, type, f, more keys)."""
    live = LiveState()
    for at, process, type_, f, more in events:
        live.feed({"time": int(at * S), "process": process, "type": type_, "f": f, "lock": "lock", **more})
    return live


def seen(live: LiveState, since: float, until: float) -> list[tuple[str, str, float, float | None, str | None]]:
    """(node, f, sent, done, came to) in s."""
    return [
        (r.node, r.f, r.sent_ns / S, None if r.done_ns is None else r.done_ns / S, r.came_to)
        for r in live.requests(int(since * S), int(until * S), NODES)
    ]


def test_requests_are_those_that_were_under_way() -> None:
    """What was sent before and answered after counts; what had ended by then doesn't; nor does a write."""
    live = told(
        (1.0, 0, "invoke", "acquire", {}),
        (1.5, 1, "invoke", "acquire", {}),
        (2.0, 0, "ok", "acquire", {}),
        (2.1, 0, "invoke", "write", {"resource": "fenced"}),
        (2.5, 0, "invoke", "renew", {}),
        (2.6, 0, "fail", "renew", {"held": False}),
        (9.0, 0, "invoke", "release", {}),
    )
    assert seen(live, 2.3, 4.0) == [("c1", "acquire", 1.5, None, None), ("c0", "renew", 2.5, 2.6, "fail")]
    assert live.requests(int(2.3 * S), 4 * S, NODES)[1].held is False
    assert seen(live, 1.9, 2.2) == [("c0", "acquire", 1.0, 2.0, "ok"), ("c1", "acquire", 1.5, None, None)]


def test_a_crash_ends_what_its_process_had_asked_for() -> None:
    """Of that process alone."""
    live = told(
        (1.0, 0, "invoke", "acquire", {}),
        (1.0, 1, "invoke", "acquire", {}),
        (1.2, 0, "info", "crash", {}),
        (1.9, 0, "invoke", "acquire", {}),
    )
    assert seen(live, 1.0, 1.5) == [("c0", "acquire", 1.0, 1.2, "crash"), ("c1", "acquire", 1.0, None, None)]

"""What an adapter says becomes events of the history, and what breaks the protocol ends the contender."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.stage import Stage, paper
from tests.waiting import until
from tests.workloads.test_process import Process, spawn
from workloads.adapters.examine import EVERY
from workloads.clients.base import ClientUnusable

__all__ = ["spawn"]
DOCS = Path(__file__).parents[2] / "docs" / "adapters.md"


def gone(pid: int) -> bool:
    """Whether nothing of it runs any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def spawned(spawn: Callable[..., Process], command: list[str]) -> Process:
    """The process of a contender with this adapter, which has said hello."""
    config = {"endpoints": [["n1", 1]], "adapter": {"command": command}}
    process = spawn(client="workloads.clients.adapter:Adapter", client_config=config)
    assert "hello" in process.hear()
    return process


def told(events: list[dict[str, Any]], f: str) -> list[str]:
    return [event["type"] for event in events if event["f"] == f]


def test_the_rules_stand_on_the_page_as_they_are_in_the_code() -> None:
    """Somebody who writes an adapter reads the page; a message names the rule."""
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", DOCS.read_text(), re.MULTILINE))
    assert {name: rows.get(name) for name in EVERY} == EVERY


def test_what_it_says_unasked_is_told_of_the_past(tmp_path: Path) -> None:
    """A renewal is told from its own stamp on, `lost` ends the belief, and a fail says what the service said."""
    command = paper(
        tmp_path,
        """
        say(hello=HELLO)
        for command in commands():
            if command["do"] == "acquire":
                since = {"after": command["id"], "seconds": 0}
                say(id=command["id"], type="ok", token=7, since=since, notes={"where": "n1"})
                while not os.path.exists(__file__ + ".told"): time.sleep(0.01)
                sent = now()
                time.sleep(0.05)
                say(renewed=True, of=command["id"], at=sent + 0.01, proves=True)
                say(lost="expired", of=command["id"], at=now())
            else:
                say(id=command["id"], type="fail", error="busy", held=False)
        """,
    )
    stage = Stage(command)
    hold = stage.contender.acquire(1.0)
    assert hold is not None
    (tmp_path / "adapter.py.told").touch()  # what was sent before the grant was told of counts as unknown
    until(lambda: not hold.believes, "the adapter's word")
    assert not hold.begin_write()
    hold.release()
    events = stage.events()
    assert [f"{event['f']}.{event['type']}" for event in events] == [
        "acquire.invoke", "acquire.ok", "renew.invoke", "renew.ok", "lost.info", "release.invoke", "release.fail",
    ]  # fmt: skip
    granted, sent, renewed = events[1], events[2], events[3]
    assert (granted["token"], granted["where"]) == (7, "n1")
    assert events[0]["time"] <= granted["lease_from"] <= granted["time"]
    assert renewed["time"] - sent["time"] >= 0.04 * 1e9
    assert "proves" not in renewed
    assert events[-1]["held"] is False
    assert not stage.died


BEGUN = 'say(hello=HELLO); command = next(commands())["id"]; '
AFTER = "; time.sleep(60)"
BREACHES = {
    "says-hello": 'say(good="day")',
    "speaks-version-1": 'say(hello={**HELLO, "protocol": 2})',
    "hello-is-whole": 'say(hello={**HELLO, "errors": {"busy": "fail"}})',
    "one-hello": f"{BEGUN}say(hello=HELLO){AFTER}",
    "prints-json": f'{BEGUN}print("connecting...", flush=True){AFTER}',
    "ends-its-lines": f'{BEGUN}os.write(1, b"x" * 100000){AFTER}',
    "answers-what-was-asked": f'{BEGUN}say(id=9, type="ok"){AFTER}',
    "answers-in-form": f'{BEGUN}say(id=command, type="ok", token="7"){AFTER}',
    "errors-stand-in-the-table": f'{BEGUN}say(id=command, type="fail", error="what"){AFTER}',
    "stamps-are-possible": f'{BEGUN}say(id=command, type="ok", since=dict(at=now() + 9)){AFTER}',
    "no-flood": f'{BEGUN}\nwhile True: say(lost="expired", of=command, at=now())',
    "answers-in-time": f"{BEGUN}{AFTER[2:]}",
    "stays": f'{BEGUN}print("out of ideas", file=sys.stderr); sys.exit(3)',
}


@pytest.mark.parametrize("rule", BREACHES)
def test_each_breach_is_named_and_nothing_is_left(tmp_path: Path, rule: str) -> None:
    """Before the start it is fatal, after it the contender dies of it; both name the rule, and the process is gone."""
    marker = tmp_path / "pid"
    body = f"open({str(marker)!r}, 'w').write(str(os.getpid()))\n{BREACHES[rule]}"
    try:
        stage = Stage(paper(tmp_path, body), patience_seconds=0.1)
    except ClientUnusable as error:
        words = [str(error)]
    else:
        stage.contender.acquire(0.1)
        until(lambda: stage.died, f"the breach of {rule}")
        stage.events()
        words = stage.died
    assert len(words) == 1
    assert f"(rule {rule}: " in words[0]
    assert gone(int(marker.read_text()))
    if rule == "stays":
        assert "ended with exit code 3; its last words on stderr: out of ideas" in words[0]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/nowhere/lock"], "there is no program '/nowhere/lock' on this node"),
        (["{plain}"], "is not executable"),
        (["{orphan}"], "its interpreter is not there (its first line is '#!/nowhere/python')"),
        (["python3", "-m", "no_such_module"], "No module named no_such_module"),
    ],
)
def test_what_can_not_start_is_told_in_words(tmp_path: Path, command: list[str], words: str) -> None:
    """The four ways in which a newcomer's command is wrong."""
    plain, orphan = tmp_path / "plain", tmp_path / "orphan"
    plain.write_text("print()")
    orphan.write_text("#!/nowhere/python\n")
    orphan.chmod(0o755)
    with pytest.raises(ClientUnusable, match=re.escape(words)):
        Stage([word.format(plain=plain, orphan=orphan) for word in command])


def test_a_flood_on_stderr_is_drained_and_bounded(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A hundred megabytes stop nobody, and a mebibyte of them is kept."""
    flood = 'for _ in range(1600): os.write(2, b"e" * 65536)'
    command = paper(tmp_path, f"{flood}\nsay(hello=HELLO)\nfor command in commands(): say(id=command['id'], type='ok')")
    stage = Stage(command)
    hold = stage.contender.acquire(1.0)
    assert hold is not None
    hold.release()
    assert told(stage.events(), "release") == ["invoke", "ok"]
    kept = capfdbinary.readouterr().err
    assert (1 << 20) <= len(kept) < (1 << 20) + 1000
    assert b"from here on the adapter's stderr is not kept" in kept


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    """Also a process that has put itself into a session of its own, whose parent is gone, and which holds our pipes."""
    marker = tmp_path / "pid"
    command = paper(
        tmp_path,
        f"""
        say(hello=HELLO)
        next(commands())
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                open({str(marker)!r}, "w").write(str(os.getpid()))
                time.sleep(600)
            os._exit(0)
        while not os.path.exists({str(marker)!r}): time.sleep(0.01)
        sys.exit(0)
        """,
    )
    stage = Stage(command)
    stage.contender.acquire(1.0)
    until(lambda: stage.died, "the end of the adapter")
    stage.events()
    assert "ended with exit code 0" in stage.died[0]
    assert gone(int(marker.read_text()))


def test_nothing_outlives_a_contender_whose_stdin_ends(tmp_path: Path, spawn: Callable[..., Process]) -> None:
    """It leaves at once, without a goodbye, and takes along what its adapter has put out of its own reach."""
    marker = tmp_path / "pid"
    body = f"""
        say(hello=HELLO)
        if os.fork() == 0:
            os.setsid()
            open({str(marker)!r}, "w").write(str(os.getpid()))
            time.sleep(600)
        time.sleep(600)
        """
    process = spawned(spawn, paper(tmp_path, body))
    until(lambda: marker.exists() and marker.read_text(), "what the adapter starts")
    assert process.popen.stdin is not None
    process.popen.stdin.close()
    assert process.popen.wait(60) == 0
    assert gone(int(marker.read_text()))


def test_an_adapter_does_not_outlive_a_contender_that_is_killed(tmp_path: Path, spawn: Callable[..., Process]) -> None:
    """By whomever: the kernel ends it with its parent."""
    marker = tmp_path / "pid"
    body = f"open({str(marker)!r}, 'w').write(str(os.getpid()))\nsay(hello=HELLO)\ntime.sleep(600)"
    process = spawned(spawn, paper(tmp_path, body))
    process.popen.kill()
    until(lambda: gone(int(marker.read_text())), "the end of the adapter")


def test_an_acquire_that_is_cancelled_is_given_up_with_its_adapter(tmp_path: Path) -> None:
    """What it would be granted afterwards nobody would give back."""
    stage = Stage(paper(tmp_path, "say(hello=HELLO)\ntime.sleep(600)"), ttl=0.5)
    pid = stage.adapter.pid
    stage.contender.stopping.set()
    assert stage.contender.acquire(60.0) is None
    assert gone(pid)
    assert stage.adapter.counters["acquires_cut_off"] == 1
    assert told(stage.events(), "acquire") == ["invoke", "info"]
    assert not stage.died


def test_one_that_ignores_the_end_of_its_stdin_is_killed_and_counted(tmp_path: Path) -> None:
    """It must not outlive its contender."""
    stage = Stage(paper(tmp_path, "say(hello=HELLO)\nwhile True: time.sleep(1)"))
    pid = stage.adapter._child.pid
    stage.events()
    assert stage.adapter.counters["adapter_killed"] == 1
    assert gone(pid)

"""Verdicts that others wrote and that misbehave: each costs its own answer, in time, and nothing else of anybody's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from checkers import Judgement, judge, plugins
from harness import registry
from harness.errors import UsageError
from harness.history import read
from tests import waiting
from tests.interrupts.rounds import hearing

until = partial(waiting.until, seconds=30.0)

CASE = Path(__file__).parents[2] / "cases" / "clean-handover.jsonl"
FENCEPOST = Path(sys.executable).with_name("fencepost")

HOSTILE = '''
"""Verdicts as nobody should write them."""
import os, signal, subprocess, sys, threading, time
import numpy
from checkers import Finding, Verdict

class Odd(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise Odd

def hangs(model):
    while True: pass

def sleeps(model):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("I am waiting", flush=True)
    time.sleep(3600)

def quits(model):
    raise SystemExit(0)

def interrupts(model):
    raise KeyboardInterrupt

def generator(model):
    raise GeneratorExit

def odd(model):
    raise Odd("of a kind of its own")

def mute(model):
    raise Mute

def surrogate(model):
    raise ValueError("\\ud800")

def exits(model):
    os._exit(0)

def exits_badly(model):
    print("so long", flush=True)
    os._exit(3)

def kills_itself(model):
    os.kill(os.getpid(), signal.SIGKILL)

def recurses(model):
    return recurses(model)

def eats(model):
    kept = []
    while True:
        kept.append(numpy.empty(1 << 27))

def prints(model):
    print("[]" * 100_000)
    os.write(1, b"{}\\n")
    sys.stderr.write("words\\n")
    return Verdict(True)

def long_answer(model):
    return Verdict(True, note="x" * (40 << 20))

def no_event(model):
    return Verdict(False, [Finding("odd", None, (2, 4711), "It is odd.", 0)])

def mutates(model):
    for array in (model.ok, model.L, model.E, model.history.time, model.history.token):
        array.setflags(write=True)
        array[:] = 0
    model.history.locks = ()
    return Verdict(True)

def forks(model):
    """Leaves a child in the session, one in a session of its own, and one of an orphan."""
    here = os.environ["HERE"]
    code = "import time; time.sleep(3600)"
    for number, new in enumerate((False, True)):
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=new)
        open(f"{here}/child-{number}", "w").write(str(child.pid))
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(f"{here}/child-2", "w").write(str(os.getpid()))
            time.sleep(3600)
        os._exit(0)
    while not os.path.exists(f"{here}/child-2") or not open(f"{here}/child-2").read():
        time.sleep(0.01)
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return Verdict(True, stats={"left": 3})

def slow(model):
    open(os.environ["HERE"] + "/slow", "w").write(str(os.getpid()))
    time.sleep(3600)

def right(model):
    return Verdict(True, stats={"grants": len(model), "last": int(model.ok.max())})
'''
NAMES = [line.split()[1].partition("(")[0] for line in HOSTILE.splitlines() if line.startswith("def ")]

Install = Callable[..., dict[str, str]]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Installs a package that registers some of the verdicts above, and more; gives the environment that has it."""

    def make(*names: str, **more: str) -> dict[str, str]:
        site = tmp_path / "site"
        (site / "hostile-1.0.dist-info").mkdir(parents=True)
        (site / "hostile-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
        entries = [f"{name} = hostile_verdicts:{name}" for name in names] + [f"{n} = {ref}" for n, ref in more.items()]
        (site / "hostile-1.0.dist-info" / "entry_points.txt").write_text(
            "[fencepost.verdicts]\n" + "\n".join(entries) + "\n"
        )
        (site / "hostile_verdicts.py").write_text(HOSTILE)
        (site / "hangs_at_import.py").write_text("import time\ntime.sleep(3600)\n")
        (site / "interrupts_at_import.py").write_text("raise KeyboardInterrupt\n")
        return {**os.environ, "PYTHONPATH": str(site), "HERE": str(tmp_path)}

    return make


def run(env: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(FENCEPOST), "check", str(CASE), *map(str, arguments)],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_deadline_ends_what_hangs(install: Install) -> None:
    """In its own code, in another's, at its import: unknown with the reason; the one after it is asked as ever."""
    env = install("hangs", "sleeps", "right", late="hangs_at_import:check") | {plugins.SETTING: "2"}
    done = run(env, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    verdicts = json.loads(done.stdout)[0]["verdicts"]
    reason = "the checker gave no answer within 2 s, and was ended"
    assert verdicts["hangs"]["note"] == verdicts["late"]["note"] == reason
    assert verdicts["sleeps"]["note"] == f"{reason}\nIt printed last:\nI am waiting"
    assert {verdicts[name]["valid"] for name in ("hangs", "sleeps", "late")} == {"unknown"}
    assert verdicts["right"]["stats"] == {"grants": 3, "last": 4_020_000_000}


def test_each_costs_its_own_verdict_alone(install: Install, tmp_path: Path) -> None:
    """Whatever a checker does: unknown with the reason, and the others (those after it too) as if it weren't there."""
    names = [name for name in NAMES if name not in ("slow", "hangs", "sleeps")]
    done = run(install(*names, ctrl="interrupts_at_import:check"), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    verdicts = json.loads(done.stdout)[0]["verdicts"]
    notes = {name: verdict.get("note", "") for name, verdict in verdicts.items()}
    reasons = {
        "quits": "crashed: SystemExit: 0",
        "interrupts": "crashed: KeyboardInterrupt",
        "ctrl": "crashed: KeyboardInterrupt",
        "generator": "crashed: GeneratorExit",
        "odd": "crashed: Odd: of a kind of its own",
        "mute": "crashed: Mute",
        "surrogate": "crashed: ValueError: \\ud800",
        "exits": "ended with exit code 0 before it had answered",
        "exits_badly": "ended with exit code 3 before it had answered\nIt printed last:\nso long",
        "kills_itself": "was killed by signal 9 (SIGKILL)",
        "recurses": "crashed: RecursionError",
        "eats": "crashed: MemoryError",
        "long_answer": "answered with more than 32 MiB",
        "no_event": "returned finding 1 with line 4711 among its events",
    }
    for name, reason in reasons.items():
        assert verdicts[name]["valid"] == "unknown", name
        assert reason in notes[name], name
    assert {name: verdicts[name]["valid"] for name in ("prints", "forks", "right")} == dict.fromkeys(
        ("prints", "forks", "right"), True
    )
    assert verdicts["right"]["stats"] == {"grants": 3, "last": 4_020_000_000}
    alone = json.loads(run(dict(os.environ), "--json").stdout)[0]["verdicts"]
    assert {name: verdicts[name] for name in alone} == alone
    left = [int((tmp_path / f"child-{number}").read_text()) for number in range(3)]
    assert [pid for pid in left if alive(pid)] == []


def test_an_unknown_of_theirs_is_no_false(install: Install) -> None:
    """The exit code says unknown (3) where such a verdict is required, and nothing at all where it isn't."""
    env = install("odd", "right")
    assert run(env).returncode == 0
    assert run(env, "--require", "odd").returncode == 3
    assert run(env, "--require", "right").returncode == 0
    table = run(env)
    assert "crashed: Odd" in table.stdout


def test_nobody_takes_the_name_of_ours(install: Install) -> None:
    """A package that registers `lease` doesn't decide it."""
    env = install(lease="hostile_verdicts:odd")
    verdicts = json.loads(run(env, "--json").stdout)[0]["verdicts"]
    assert verdicts["lease"]["valid"] is True


def test_ctrl_c_ends_the_one_that_hangs(install: Install, tmp_path: Path) -> None:
    """`check` leaves with 130 at once, and takes the checker's process with it."""
    env = install("slow")
    command = [str(FENCEPOST), "check", str(CASE)]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, preexec_fn=hearing)
    try:
        pid = int(until(lambda: (tmp_path / "slow").exists() and (tmp_path / "slow").read_text(), "it was asked"))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    until(lambda: not alive(pid), "the checker has ended")


def test_kill_9_ends_it_as_well(install: Install, tmp_path: Path) -> None:
    """Whoever waited is gone: so is the checker."""
    env = install("slow")
    process = subprocess.Popen([str(FENCEPOST), "check", str(CASE)], env=env)
    try:
        pid = int(until(lambda: (tmp_path / "slow").exists() and (tmp_path / "slow").read_text(), "it was asked"))
    finally:
        process.kill()
        process.wait()
    until(lambda: not alive(pid), "the checker has ended")


@pytest.fixture
def here(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judgement]:
    """Judges with some of the verdicts above as if they were installed in this process."""

    def judged(*names: str, cancel: threading.Event | None = None) -> Judgement:
        more = {name: EntryPoint(name, f"hostile_verdicts:{name}", "fencepost.verdicts") for name in names}
        # Asked for before they are installed: the registry remembers what it saw, for all tests that follow.
        group = {**registry._group("verdicts"), **more}
        env = install(*names)
        monkeypatch.setenv("HERE", env["HERE"])
        monkeypatch.syspath_prepend(env["PYTHONPATH"])
        monkeypatch.setattr(registry, "_group", lambda kind: group)
        return judge(read(CASE), cancel=cancel)

    return judged


def test_in_one_thread_of_many(here: Callable[..., Judgement]) -> None:
    """A trial judges so; nothing that other threads hold at that moment matters, and it takes no second."""
    stop = threading.Event()
    others = [threading.Thread(target=stop.wait) for _ in range(20)]
    for thread in others:
        thread.start()
    found: list[Judgement] = []
    began = time.monotonic()
    judging = threading.Thread(target=lambda: found.append(here("right", "mutates")))
    judging.start()
    judging.join(60)
    took = time.monotonic() - began
    stop.set()
    assert found[0].verdicts["right"].valid is True
    assert "hostile_verdicts" not in sys.modules
    assert took < 10  # 0.4 s on two cores that have nothing else to do


def test_the_wish_to_stop_ends_it_soon(here: Callable[..., Judgement], tmp_path: Path) -> None:
    """An interrupted trial doesn't wait for the deadline of a checker; its other verdicts are there."""
    cancel = threading.Event()
    threading.Thread(target=lambda: (until(lambda: (tmp_path / "slow").exists(), "it was asked"), cancel.set())).start()
    began = time.monotonic()
    judgement = here("slow", cancel=cancel)
    assert time.monotonic() - began < plugins.SECONDS / 2
    assert judgement.verdicts["slow"].valid == "unknown"
    assert "was ended with the run, which was interrupted" in (judgement.verdicts["slow"].note or "")
    assert judgement.verdicts["lease"].valid is True
    until(lambda: not alive(int((tmp_path / "slow").read_text())), "the checker has ended")


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_the_deadline_is_a_number_of_seconds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else is told, with the name of the setting."""
    monkeypatch.setenv(plugins.SETTING, text)
    with pytest.raises(UsageError, match="FENCEPOST_PLUGIN_SECONDS must be a number of seconds above 0"):
        plugins.seconds()

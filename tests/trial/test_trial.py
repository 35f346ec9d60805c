"""Whole trials on the real thing: to the end, and out of every kind of trouble with nothing leaked and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import docker
import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import FencepostError
from tests import place
from tests.interrupts.rounds import hearing
from tests.report.pages import page_of
from tests.waiting import until

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

FEW = ("--contenders", "2")
"""A node for each has to be started and removed."""
SHORT = (*FEW, "--warmup", "0.5", "--duration", "3", "--recovery", "0.5", "--min-grants", "1", "--min-handovers", "0")
LONG = (*FEW, "--warmup", "0.5", "--duration", "60")
"""For trials that something ends."""
BEGUN_SECONDS = 240.0
"""Within which a trial has begun: it may have to wait for its turn behind those of others."""


def fencepost(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *words],
        capture_output=True,
        text=True,
        timeout=2 * BEGUN_SECONDS,
        check=False,
        env={**os.environ, **(env or {})},
    )


def demo(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The demo in less time: a lease of two seconds runs out in its pause all the same."""
    short = {"warmup": 1.0, "duration": 3.5, "fault_on": 3.5, "recovery": 0.5}
    source = f"from harness.commands import demo; demo.CELL.update({short}); from harness.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", source, "demo", "--no-open", *words],
        capture_output=True,
        text=True,
        timeout=2 * BEGUN_SECONDS,
        check=False,
        env={**os.environ, **(env or {})},
    )


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "trial.json").read_text())  # type: ignore[no-any-return]


def events(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [line for line in lines if line["type"] not in ("meta", "end")]


def start(tmp_path: Path, *words: str) -> tuple[subprocess.Popen[str], Path]:
    """A trial in a process of its own, and its folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "run", *words, "--results", str(tmp_path), "--name", "t"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hearing,
    )
    return process, tmp_path / "t"


def landed(folder: Path) -> dict[str, Any] | None:
    """The first fault that has landed, from the journal."""
    path = folder / "faults.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[0]) if lines else None


def assert_the_pause_is_blamed(folder: Path, findings: list[dict[str, Any]]) -> None:
    """Of what the paused one believed while another did, the pause is to blame, if it left within a ttl of its waking.

    All is naive in the demo: on a machine that is so busy that somebody gets no turn for a ttl, that one goes on past
    its own deadline, and is blamed for it.
    """
    meta, *lines = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    start, stop = (line for line in lines if line.get("f") == "fault")
    blamed = []
    for finding in findings:
        grants = [lines[number - 2] for number in finding["events"]]
        earlier, later = sorted(grants[:2], key=lambda grant: grant["time"])
        until = later["time"] / 1e9 + finding["seconds"]
        if earlier["process"] in start["processes"]:
            blamed.append(finding["blame"])
            assert finding["blame"] == ("pause" if until <= stop["time"] / 1e9 + meta["ttl"] else "client"), finding
        else:
            assert finding["blame"] == "client", finding
    assert "pause" in blamed


def test_the_demo_is_a_whole_trial_in_which_a_frozen_holder_damages_the_unfenced_resource_alone(tmp_path: Path) -> None:
    """The story that the project exists for, end to end on a real Redis, with all that a trial leaves behind.

    Told as it happens, in eighty columns; counted by the resource; on a page. Exit code 0: as the story goes.
    """
    done = demo("--results", str(tmp_path), "--name", "t")
    folder = tmp_path / "t"
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    assert "\x1b" not in done.stdout
    for words in ("PAUSE: c", "has run out, and c", "WAKES", "which it had rendered", "now have two", "swallows"):
        assert words in " ".join(done.stdout.split()), words
    told = record(folder)
    counted = told["tally"]["counted"]
    assert counted["unfenced"]["twice"] == len(counted["unfenced"]["doubled"]) > 0
    assert counted["fenced"]["twice"] == counted["idempotent"]["twice"] == 0
    assert min(counted["fenced"]["refused"], counted["idempotent"]["swallowed"]) > 0
    page = page_of(folder / "demo.html").text
    assert f"{counted['unfenced']['twice']} customers got two statements" in page
    assert "WAKES" in page
    assert "What the job came to" in page_of(folder / "report.html").text
    verdicts = json.loads((folder / "verdict.json").read_text())["verdicts"]
    assert {name: verdicts[name]["valid"] for name in ("lease", "fencing", "fenced", "faults")} == dict.fromkeys(
        ("lease", "fencing", "fenced", "faults"), True
    )
    assert verdicts["damage"]["valid"] is False
    assert_the_pause_is_blamed(folder, verdicts["exclusion"]["findings"])
    assert told["outcome"]["word"] == "as-expected"
    came_to = {"landed": 1, "bit": 1, "missed": 0, "immune": 0}
    assert told["outcome"]["faults"] == {**came_to, "missed_by": [], "immune_by": []}
    assert told["versions"]["system"].startswith("8")
    assert told["runtime"] == place.runtime().name
    assert 0 <= told["strain"]["cpu"] <= 1
    reached = told["start_seconds"]
    assert list(reached) == ["nodes", "agents", "services", "lane", "contenders", "healthy", "hellos"]
    assert sorted(reached.values()) == list(reached.values())
    assert 0 < reached["nodes"] < reached["hellos"] < 60
    assert [phase["name"] for phase in told["phases"]][-1] == "check"
    for name in ("report.html", "ledger.jsonl", "faults.jsonl", "harness.log"):
        assert (folder / name).stat().st_size > 0, name
    meta, *told_events, end = (json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines())
    assert set(meta["require"]) == {"lease", "linearizable", "fencing", "fenced", "conduct", "progress", "faults"}
    assert meta["started"] == told["epoch"]["utc"]
    assert end == {"type": "end", "events": len(told_events)}
    rows = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert {event["resource"]: event["ids"] for event in told_events if event["f"] == "audit"} == {
        twin: [row["id"] for row in rows if row["resource"] == twin] for twin in ("fenced", "unfenced")
    }
    assert verdicts["conduct"]["valid"] is True
    assert verdicts["fenced"]["stats"]["looked_for"] > 5
    for node in ("n1", "c0", "c2", "resource"):
        assert (folder / "logs" / node).is_dir(), node
    assert b"Ready to accept connections" in (folder / "logs" / "n1" / "service.log").read_bytes()
    resource = (folder / "logs" / "resource" / "service.log").read_bytes()
    assert b"ready to accept connections" in resource
    assert b"performing post-bootstrap initialization" not in resource, "its image has this very cluster ready"
    assert place.left_of(told["site"]) == []


def test_a_killed_holder_lives_again_and_the_trial_goes_on(tmp_path: Path) -> None:
    """Its end is a crash and nobody's doing, its lease ran out meanwhile, and it acquires again under its number."""
    done = fencepost(
        *("run", "redis", "--fault", "kill-holder", "--ttl", "1", "--results", str(tmp_path), "--name", "t", *SHORT),
    )
    folder = tmp_path / "t"
    assert done.returncode == 0, done.stdout + done.stderr
    told = events(folder)
    (crash,) = (event for event in told if event["f"] == "crash")
    start, stop = (event for event in told if event["f"] == "fault")
    assert (start["kind"], start["processes"], start["receipt"]) == ("kill", [crash["process"]], "landed")
    assert (stop["receipt"], stop["bit"]) == ("undone", True), stop
    assert start["time"] <= crash["time"] < stop["time"]
    mine = [event for event in told if event["process"] == crash["process"]]
    last = mine[: mine.index(crash)][-1]
    assert last["f"] != "release", "it was killed while it held"
    assert next(event["f"] for event in mine[mine.index(crash) + 1 :]) == "acquire"
    assert record(folder)["contenders"][str(crash["process"])]["lives"] == 2


def test_faults_without_teeth_are_told_from_those_that_bite(tmp_path: Path) -> None:
    """A freeze of a fifth of the lease, and a holder that releases before its lease could run out: both land, neither
    bites, and neither cell is green. Each says what was measured, and what to set.
    """
    (tmp_path / "toothless.toml").write_text(
        "[defaults]\nguarded = false\nwarmup = 1\nduration = 4\nmin_grants = 3\nmin_handovers = 1\ncontenders = 3\n"
        '[axes]\nsystem = ["redis"]\nfault = ["freeze-holder", "partition-holder"]\n'
        '[[override]]\nwhen = { fault = "freeze-holder" }\nset = { fault_on = 0.4 }\n'
        '[[override]]\nwhen = { fault = "partition-holder" }\n'
        "set = { fault_on = 3.1, workload_options = "
        "{ takes_orders = 0, long_share = 0, hold_max = 0.5, hold_min = 0.4 } }\n"
    )
    done = fencepost("matrix", str(tmp_path / "toothless.toml"), "-j", "2", "--results", str(tmp_path), "--name", "m")
    assert done.returncode == 3, done.stdout + done.stderr
    listed = json.loads((tmp_path / "m" / "matrix.json").read_text())["cells"]
    outcomes = {each["cell"]["fault"]: each["outcome"] for each in listed}
    assert {outcome["word"] for outcome in outcomes.values()} == {"inconclusive"}
    assert all(each["faults"]["missed"] == each["faults"]["landed"] > 0 for each in outcomes.values())
    [short] = [reason for reason in outcomes["freeze-holder"]["reasons"] if "missed" in reason]
    assert "before the lease of c" in short
    assert short.endswith("it takes fault_on of at least 3.1 s")
    [early] = [reason for reason in outcomes["partition-holder"]["reasons"] if "missed" in reason]
    assert "before its lease could have run out" in early or "did not hold the lock when the fault began" in early
    assert "holds until it is told" in early


def test_a_frozen_leader_is_let_go_on_when_it_matters_most(tmp_path: Path) -> None:
    """Somebody holds through the freeze and renews at the new leader; it ends when the old leader's own count of that
    lease is over, and the witness is let go once it was seen what that did to its hold.

    The witness is naive: a guarded one gives its hold up where the election takes longer than its lease, as it does on
    a machine that is busy, and then there is no moment. A new leader gives every lease its full ttl again.
    """
    words = ("--naive", "--contenders", "2", "--warmup", "0.5", "--recovery", "0.5")
    words += ("--duration", "12", "--fault-on", "12", "--min-grants", "1", "--min-handovers", "0")
    done = fencepost("run", "etcd", "--fault", "freeze-leader", *words, "--results", str(tmp_path), "--name", "t")
    folder = tmp_path / "t"
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: it did harm, as it should now and then
    lines = [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()]
    start, stop = (
        next(line for line in lines if (line["id"], line["phase"]) == ("f1", word)) for word in ("start", "stop")
    )
    witness = stop["evidence"]["witness"]
    assert witness["ended"] == "the moment had come", witness
    assert start["time"] < witness["moved_ns"] < stop["time"]
    assert start["time"] < witness["renewed_ns"] < stop["time"]
    assert witness["promise_end_ns"] < stop["time"] < start["time"] + 12e9
    assert witness["leads"] not in (None, *start["targets"])
    assert witness["came_to"] in ("it holds on", "it was told that it does not hold", "its promise is over")
    mine = [event for event in events(folder) if event["process"] == int(witness["node"][1:])]
    order = [event for event in mine if event["f"] == "hold" and event["holds"] and event["time"] < start["time"]][-1]
    [let_go] = [event for event in mine if event["f"] == "let_go" and event["id"] == order["id"]]
    assert order["time"] < start["time"] < stop["time"] < let_go["time"]


def test_ctrl_c_in_a_fault_undoes_it_and_keeps_history_and_logs(tmp_path: Path) -> None:
    """The user's way out is the same undo; exit 130, a history that can be checked, nothing left running."""
    process, folder = start(tmp_path, "redis", "--fault", "freeze-leader", "--fault-on", "60", *LONG)
    try:
        until(lambda: landed(folder), "a fault", BEGUN_SECONDS)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, output
    faults = [event for event in events(folder) if event["f"] == "fault"]
    assert [(event["phase"], event["receipt"]) for event in faults] == [("start", "landed"), ("stop", "undone")]
    # Whoever was told to hold through it is let go, too.
    told = {event["id"] for event in events(folder) if event["f"] == "hold" and event["holds"]}
    assert told
    assert told <= {event["id"] for event in events(folder) if event["f"] == "let_go"}
    assert "interrupted" in record(folder)["error"]
    assert (folder / "report.html").exists()
    assert (folder / "logs" / "n1" / "service.log").stat().st_size > 0
    assert place.left_of(record(folder)["site"]) == []


@pytest.mark.docker
def test_kill_9_leaves_no_frozen_process_and_clean_removes_the_rest(tmp_path: Path) -> None:
    """The agents are dead man's switches; the containers that stay are found by their labels alone."""
    process, folder = start(tmp_path, "redis", "--fault", "freeze-leader", "--fault-on", "60", *LONG)
    try:
        fault = until(lambda: landed(folder), "a fault", BEGUN_SECONDS)
        site = record(folder)["site"]
        (node,) = docker.from_env().containers.list(
            filters={"label": [f"fencepost.site={site}", "fencepost.node=n1", "fencepost.part=node"]}
        )
        look = "cat /proc/[0-9]*/stat"

        def stopped() -> bool:
            return b" T " in node.exec_run(["sh", "-c", look]).output

        assert fault["receipt"] == "landed"
        assert stopped()
        process.kill()
        process.wait()
        until(lambda: not stopped(), "the agent thaws what it froze when its stdin ends", 20)
        assert len(events(folder)) > 5
        cleaned = fencepost("clean", "--site", site)
        assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
        assert place.left_of(site) == []
    finally:
        process.kill()


def test_losing_the_reader_of_the_output_loses_nothing_else(tmp_path: Path) -> None:
    """`| head`: the trial goes on to its end, takes its nodes down and writes its verdict and report."""
    words = " ".join(
        [sys.executable, "-m", "harness", "run", "redis", "--results", str(tmp_path), "--name", "t", *SHORT]
    )
    subprocess.run(["bash", "-c", f"{words} | head -n 1"], check=True, timeout=2 * BEGUN_SECONDS, capture_output=True)
    folder = tmp_path / "t"
    until(lambda: (folder / "report.html").exists(), "the report", BEGUN_SECONDS)
    assert record(folder)["outcome"]["word"] == "as-expected"
    assert place.left_of(record(folder)["site"]) == []


@pytest.mark.docker
def test_a_service_that_never_gets_healthy_is_told_with_what_was_seen(tmp_path: Path) -> None:
    """An image that isn't the system: the trial ends at once with the service's last words, exit 4, nothing leaked."""
    node = place.reference("node")  # has no redis-server in it
    done = fencepost(*("run", "redis", "--image", f"redis={node}", "--results", str(tmp_path), "--name", "t", *SHORT))
    assert done.returncode == 4, done.stdout + done.stderr
    error = record(tmp_path / "t")["error"]
    assert "redis" in error
    assert "n1" in error
    assert place.left_of(record(tmp_path / "t")["site"]) == []


def test_a_kept_trial_says_how_to_enter_and_how_to_remove(tmp_path: Path) -> None:
    """`--keep` leaves the nodes, and the two commands that it prints work."""
    done = fencepost("run", "redis", "--keep", "--results", str(tmp_path), "--name", "t", *SHORT)
    site = record(tmp_path / "t")["site"]
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        kept = [line.removeprefix("kept:").strip() for line in done.stdout.splitlines() if line.startswith("kept:")]
        enter = next(line.removeprefix("n1: ") for line in kept if line.startswith("n1: "))
        remove = next(line.removeprefix("remove it all: ") for line in kept if line.startswith("remove"))
        inside = subprocess.run(
            [*enter.replace("-it", "-i").split()], input="hostname\n", capture_output=True, text=True, check=False
        )
        assert inside.stdout.strip() == "n1"
        assert remove == f"fencepost clean --site {site}"
    finally:
        assert fencepost("clean", "--site", site).returncode == 0
    assert place.left_of(site) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is made with mount, which needs root")
def test_a_full_disk_ends_the_trial_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The history ends where the disk did; the error names the file; the nodes are gone.

    And nobody is judged by what is left of it: the end line that it promised is missing.
    """
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=72k", "tmpfs", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        done = fencepost("run", "redis", "--results", str(small), "--name", "t", *LONG, "--contenders", "5")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "No space left on device" in done.stdout + done.stderr
        assert events(small / "t"), "whole lines only, all that the disk took"
        assert '"type": "end"' not in (small / "t" / "history.jsonl").read_text()
        checked = fencepost("check", str(small / "t"), "--json")
        assert checked.returncode == 3, checked.stdout + checked.stderr
        (judgement,) = json.loads(checked.stdout)
        assert {verdict["valid"] for verdict in judgement["verdicts"].values()} == {"unknown"}
        assert place.left_of(record(small / "t")["site"]) == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_the_demo_tells_what_gets_an_image_that_is_missing_and_how_long_that_takes(tmp_path: Path) -> None:
    """Before anything is started or written."""
    done = demo("--results", str(tmp_path), env={"FENCEPOST_IMAGE_REDIS": "fencepost/no-such-image:0"})
    assert done.returncode != 0
    assert "redis" in done.stderr
    assert "takes a few minutes" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "env", "code", "told"),
    [
        (["run", "etdc"], {}, 2, "did you mean 'etcd'"),
        (["run", "etcd", "--falt", "none"], {}, 2, "No such option"),
        (["run", "etcd", "--runtime", "docker"], {"DOCKER_HOST": "unix:///nowhere.sock"}, 4, "Docker"),
    ],
)
def test_a_bad_request_is_one_sentence_and_its_exit_code(
    tmp_path: Path, words: list[str], env: dict[str, str], code: int, told: str
) -> None:
    """No traceback, nothing started, nothing written."""
    done = fencepost(*words, "--results", str(tmp_path / "results"), env=env)
    assert done.returncode == code, done.stdout + done.stderr
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["run", "etcd", "--fault", "freeze-holdr"], 2, "did you mean freeze-holder"),
        (["run", "redis", "--fault", "partition-leader"], 2, "makes no sense"),
        (["run", "etcd", "--system-option", "fsync"], 2, "must look like KEY=VALUE"),
        (["run", "etcd", "--image", "etcd=nobody/etcd:none"], 4, "missing: etcd"),
        (["run", "etcd", "--results", "/proc/nowhere"], 2, "can't be made"),
        (["check", "nowhere.jsonl"], 2, "nowhere.jsonl"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(tmp_path: Path, words: list[str], code: int, told: str) -> None:
    """By the error that becomes that sentence; nothing written."""
    if words[0] == "run" and "--results" not in words:
        words = [*words, "--results", str(tmp_path / "results")]
    done = CliRunner().invoke(cli, words)
    if isinstance(done.exception, FencepostError):
        assert (done.exception.exit_code, told in str(done.exception)) == (code, True), done.exception
    else:
        assert (done.exit_code, told in done.output) == (code, True), done.output
    assert not (tmp_path / "results").exists()

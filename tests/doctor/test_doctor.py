"""`fencepost doctor`: what it says is what was tried, and nothing of its trying stays."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from harness import images, registry
from harness.commands.doctor import _print as shown
from harness.commands.doctor import command
from harness.doctor import Examination, Finding, places
from harness.doctor.findings import untried
from harness.doctor.nodes import CAPABILITIES, examine_node, tell
from harness.engine import Engine
from harness.runtime import removal
from harness.runtime.owner import Owner
from tests import place
from tests.interrupts.rounds import SIGNALS, Work, start
from tests.runtime.conftest import eventually

GOOD = {"ok": True, "detail": "works"}
PROBES = ("ipv4", "ipv6", "iptables", "ip6tables", "freeze", "memory", "clocks")
GIB = 1024**3


def answer(**changes: Any) -> dict[str, Any]:
    """What a node without any fault answers, with changes."""
    probes = dict.fromkeys(PROBES, GOOD) | changes.pop("probes", {})
    return {"probes": probes, "python": "3.13.5", "disk_free_bytes": 50 * GIB, "boottime_ns": 1} | changes


def lacking(*names: str) -> dict[str, Any]:
    return answer(probes={name: {"ok": False, "detail": f"no {name} here"} for name in names})


def test_a_node_that_can_do_everything_has_only_good_findings() -> None:
    """Every probe is told, and the disk."""
    findings = tell(answer(), (), "docker")
    assert {finding.status for finding in findings} == {"ok"}
    assert len(findings) == len(PROBES) + 1
    assert not any(finding.remedy for finding in findings)


@pytest.mark.parametrize("probe", ["ipv4", "iptables", "freeze", "clocks"])
def test_what_no_trial_can_do_without_fails(probe: str) -> None:
    """The reason that was seen and the remedy are told, and trials can't run."""
    findings = tell(lacking(probe), (), "docker")
    (bad,) = [finding for finding in findings if finding.status != "ok"]
    assert bad.status == "failed"
    assert f"no {probe} here" in bad.detail
    assert bad.remedy
    assert not Examination(tuple(findings)).ok


@pytest.mark.parametrize("probe", ["ipv6", "ip6tables", "memory"])
def test_what_only_some_faults_need_is_a_limit(probe: str) -> None:
    """Trials can run; what they will lack is said, with the reason."""
    findings = tell(lacking(probe), (), "docker")
    (bad,) = [finding for finding in findings if finding.status != "ok"]
    assert bad.status == "limited"
    assert f"no {probe} here" in bad.detail
    assert bad.remedy
    assert Examination(tuple(findings)).ok


def test_the_engines_own_word_on_ipv6_is_told() -> None:
    """Why the network has no IPv6 is known to the site, not to the node."""
    findings = tell(lacking("ipv6"), ("Docker refused it: no such pool",), "docker")
    assert "no such pool" in next(f.detail for f in findings if f.name == "network IPv6")
    assert all("no such pool" not in f.detail for f in findings if f.name != "network IPv6")


@pytest.mark.parametrize(("free", "status"), [(GIB // 2, "failed"), (2 * GIB, "limited"), (9 * GIB, "ok")])
def test_a_full_disk_is_told_before_it_stops_a_trial(free: int, status: str) -> None:
    """Too little fails, little is a limit."""
    findings = tell(answer(disk_free_bytes=free), (), "docker")
    assert next(f.status for f in findings if f.name == "disk (Docker)") == status


def test_missing_images_fail_only_when_no_trial_can_run() -> None:
    """A system's image that is missing takes that system away; those that all trials need take everything."""

    def status(*missing: str) -> str:
        finding = places.kept("images", {n: None if n in missing else "1 (built)" for n in images.names()}, "docker")
        assert all(name in finding.remedy for name in missing) or set(missing) == set(images.names())
        return finding.status

    assert status() == "ok"
    assert status("redis") == "limited"
    assert status("contender") == "missing"
    assert status("postgres") == "missing"
    assert status("etcd", "zookeeper", "consul", "redis") == "missing"


def test_missing_images_are_not_held_against_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """Before `fencepost images` ever ran: that it is all that is missing is said, unless the machine lacks more."""
    missing = places.kept("images", dict.fromkeys(images.names()), "docker")
    assert missing.remedy == "fencepost images"
    fresh = Examination((missing, untried("docker"), Finding("size", "limited", True, "1 core")))
    assert (fresh.ok, fresh.only_images_missing) == (False, True)
    shown(fresh)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "docker: trials can't run here yet: only images are missing, and `fencepost images` gets them"
    )
    small = Examination((missing, untried("docker"), Finding("size", "failed", True, "little memory")))
    assert not small.only_images_missing
    shown(small)
    assert "docker: trials can't run here: size, images, node" in capsys.readouterr().out
    assert not Examination((Finding("images", "ok", True, "", runtime="docker"),)).only_images_missing


def test_no_fault_is_promised_that_there_is_not() -> None:
    """What is tried is what `fencepost list faults` has, and what every trial stands on."""
    of_trials = {"network", "network IPv6", "event times"}
    tried = {capability.name.removesuffix(" IPv6") for capability in CAPABILITIES} - of_trials - {"network"}
    assert tried <= set(registry.names("faults"))


def test_an_unknown_need_is_not_a_yes() -> None:
    """What couldn't be tried doesn't count as there."""
    assert not Examination((Finding("x", "unknown", True, "untried", runtime="docker"),)).ok
    assert Examination((Finding("x", "unknown", False, "untried", runtime="docker"),)).ok


def test_one_place_is_enough_and_what_all_need_counts_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an engine trials run in namespaces; a full disk stops them everywhere."""
    engine = Finding("engine", "failed", True, "no socket", "start it", "docker")
    trees = Finding("file trees", "ok", True, "all", runtime="local")
    either = Examination((engine, trees))
    assert (either.ok, [able.ok for able in either.runtimes.values()]) == (True, [False, True])
    shown(either)
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "docker: trials can't run here: engine",
        "local: trials can run here",
    ]
    assert not Examination((Finding("disk (results)", "failed", True, "full"), engine, trees)).ok
    fresh = Examination((engine, places.kept("file trees", dict.fromkeys(images.names()), "local"), untried("local")))
    assert (fresh.ok, fresh.only_images_missing) == (False, True)


def test_without_an_engine_it_says_so_and_exits_with_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing that anybody meets; the rest of the machine is still told."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    done = CliRunner().invoke(command, ["--json", "--runtime", "docker"])
    assert done.exit_code == 4
    found = json.loads(done.output)
    assert found["ok"] is False
    assert found["runtimes"] == {"docker": {"ok": False, "only_images_missing": False}}
    engine = next(finding for finding in found["findings"] if finding["runtime"] == "docker")
    assert (engine["name"], engine["status"]) == ("engine", "failed")
    assert engine["remedy"]
    assert "python" in [finding["name"] for finding in found["findings"]]


# -- on a real engine ------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """After the test no container or network of a doctor's site is there, save of one that somebody else runs now, and
    of one that was there before: some killed program's, which it says itself."""
    before = {site.id for site in doctors_sites()}
    yield
    found = [site for site in doctors_sites() if site.id not in before]
    assert [site.id for site in found if site.state != "running" or owned(site, os.getpid())] == []


def doctors_sites() -> list[removal.SiteLeft]:
    return [site for site in removal.find(Engine()) if site.id.startswith("doctor-")]


def owned(site: removal.SiteLeft, pid: int) -> bool:
    """Whether a process is among those that a site belongs to."""
    return pid in {owner.pid for owner in map(Owner.parse, site.owners) if owner}


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
def test_this_machine_can_run_trials() -> None:
    """What this project's own tests need is found, by trying: cuts on both families, freezing, patching clocks."""
    images.ensure(images.connect(), images.names(), report=print)
    done = CliRunner().invoke(command, ["--json", "--runtime", "docker"])
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    for name in ("engine", "images", "network", "partition", "freeze", "event times", "size"):
        assert found[name]["status"] in ("ok", "limited"), found[name]
    assert "cuts and mends" in found["partition"]["detail"]
    assert done.exit_code == 0
    assert all(each["remedy"] for each in found.values() if each["status"] == "failed")


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
def test_a_node_image_that_lacks_its_tools_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A given image is no exception: etcd's has neither python3 nor iptables."""
    client = images.connect()
    etcd = images.resolve(client, ["etcd"], {"etcd": images.BUILT})["etcd"]
    monkeypatch.setenv("FENCEPOST_IMAGE_NODE", etcd.reference)
    done = CliRunner().invoke(command, ["--runtime", "docker"])
    assert done.exit_code == 4
    assert "failed" in done.output
    assert "python3" in done.output


def interrupted(number: signal.Signals) -> tuple[int, str]:
    """A doctor that gets a signal once it has a node: its exit code and what it said."""
    process = start(Work(("doctor",), "trials can"))
    try:
        eventually("a node of the doctor's", lambda: any(owned(site, process.pid) for site in doctors_sites()), 30)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, said


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_examination_removes_its_node(number: signal.Signals) -> None:
    """Ctrl-C in the middle: the containers go before the process does. One that came to its end first is no round."""
    for _ in range(5):
        code, said = interrupted(number)
        if code == 130:
            return
        assert code == 0
        assert "trials can" in said
    pytest.fail("five times it had come to its end before the signal did")


@pytest.mark.nodes
def test_a_node_that_trials_run_on_can_do_all_that_they_need() -> None:
    """Whatever the runtime: where other tests freeze a service and move its clock, nobody is told that it can't be."""
    findings = {finding.name: finding for finding in examine_node(place.runtime())}
    for name in ("network", "partition", "freeze", "clock"):
        assert findings[name].status == "ok", findings[name]

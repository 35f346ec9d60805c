"""What is the runtime local's own: its processes and what becomes of them, whoever ends what, and what it refuses."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.commands.clean import command
from harness.errors import HarnessError, RuntimeUnavailable
from harness.runtime.base import NodeSpec, Runtime, Seen, ServiceSpec
from harness.runtime.local import left, probe
from harness.runtime.local.runtime import LocalRuntime
from tests.runtime.conftest import SLEEPER, eventually, kill_service, pids, runtime_named

pytestmark = pytest.mark.local

NSENTER = ("nsenter", "--preserve-credentials", "--user", "--net", "--mount", "--root")
"""With the files of the node: a machine needs no `ip` of its own."""


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    """Namespaces of this machine."""
    return runtime_named("local")


# What ends with what --------------------------------------------------------------------------------------------------

OPEN = """
import sys
from harness.runtime.base import NodeSpec, ServiceSpec
from harness.runtime.local.runtime import LocalRuntime
site = LocalRuntime().open_site(sys.argv[1])
nodes = site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
nodes[0].start_service(ServiceSpec("etcd", command=["sleep", "12345"]))
program = nodes[1].spawn(["sleep", "23456"], on_line=print, on_error_line=print)
if "keep" in sys.argv:
    site.keep()
print(nodes[0].how_to_enter(), flush=True)
sys.stdin.read()
"""


def processes() -> dict[int, tuple[int, bytes]]:
    """Every process that lives: its parent, and its command line."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if stat[0] not in "ZX":
                    found[int(folder.name)] = int(stat[1]), (folder / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def below(pid: int) -> list[int]:
    """A process and all that came of it, parents first."""
    known, found = processes(), [pid]
    for each in found:
        found += [child for child, (parent, _) in known.items() if parent == each]
    return found


def all_there(stub: int) -> list[int]:
    """The stub, the site, two nodes, a service, a program; whoever forks on the way to one of them has gone."""
    return eventually("six processes", lambda: found if len(found := below(stub)) == 6 else None)  # type: ignore[no-any-return]


def files() -> set[str]:
    """What there is in the machine's folder for temporary files, as far as it is this runtime's."""
    place = Path(tempfile.gettempdir()) / f"fencepost-local-{os.getuid()}"
    return set(map(str, place.glob("*")))


def machine() -> tuple[list[str], str, set[str]]:
    """The machine's interfaces and mounts, and our files: what nothing may be added to."""
    devices = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    ours = [line for line in Path("/proc/self/mounts").read_text().splitlines() if "fencepost" in line]
    return [name for name in devices if not name.startswith(("veth", "br-"))], "\n".join(ours), files()


@dataclass
class Other:
    """Another process with a site of its own. `enter` is how to look into its first node."""

    site_id: str
    process: subprocess.Popen[str]
    enter: str

    @property
    def stub(self) -> int:
        (site,) = left.find(self.site_id)
        return site.pid

    def kill(self) -> None:
        """As `kill -9` of the harness."""
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def open_other() -> Iterator[Callable[..., Other]]:
    """Starts processes that hold a site each; killed after the test, their sites ended."""
    others: list[Other] = []

    def start(*words: str) -> Other:
        site_id = f"test-{secrets.token_hex(4)}"
        process = subprocess.Popen(
            [sys.executable, "-c", OPEN, site_id, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        others.append(Other(site_id, process, process.stdout.readline().strip()))
        assert others[-1].enter
        return others[-1]

    yield start
    for other in others:
        other.kill()
        for site in left.find(other.site_id):
            assert left.remove(site, 10)


def stop(pid: int) -> None:
    """SIGSTOP, until it stands."""
    os.kill(pid, signal.SIGSTOP)
    eventually("its stop", lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


@pytest.mark.parametrize("ended", ["harness", "stub", "site", "harness, with all else stopped"])
def test_whatever_is_killed_nothing_is_left(open_other: Callable[..., Other], ended: str) -> None:
    """No process, and so no namespace; no mount, interface or file of the machine's: whichever of the chain ends."""
    before = machine()
    other = open_other()
    everything = all_there(other.stub)
    stub, site = everything[:2]
    if ended == "stub":
        os.kill(stub, signal.SIGKILL)
    elif ended == "site":
        os.kill(site, signal.SIGKILL)
    else:
        if "stopped" in ended:
            for pid in everything[1:]:
                stop(pid)
        other.kill()
    eventually("the end of all processes", lambda: not set(everything) & processes().keys() or None, 10)
    other.kill()
    assert left.find(other.site_id) == []
    assert machine() == before


def fencepost_clean(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def test_a_running_site_is_spared_and_a_kept_one_is_cleaned_once_its_process_is_gone(
    open_other: Callable[..., Other],
) -> None:
    """While its process runs it stays unless --all is given; kept it outlives that, can be entered, and is cleaned."""
    other = open_other("keep")
    host = os.uname().nodename
    everything = all_there(other.stub)
    spared = fencepost_clean("--site", other.site_id)
    stub = other.stub
    assert spared.output.endswith(
        f"site {other.site_id} stays (the namespaces under process {stub} (6 processes)): "
        f"process {other.process.pid} on {host} still runs; --all removes it all the same\n"
    )
    other.kill()
    answer = subprocess.run(f"{other.enter} -c 'hostname; ls /proc'", shell=True, capture_output=True, text=True)
    assert answer.stdout.startswith("n1\n"), answer
    dry = fencepost_clean("--site", other.site_id, "--dry-run")
    assert f"would remove the namespaces under process {stub}" in dry.output
    assert left.find(other.site_id) != []
    done = fencepost_clean("--site", other.site_id)
    assert f"removed the namespaces under process {stub}" in done.output
    assert not set(everything) & processes().keys()
    assert left.find(other.site_id) == []


def test_all_takes_running_sites_too_and_its_process_is_told(
    open_site: Callable[[], Any], runtime: LocalRuntime
) -> None:
    """With --all the owner doesn't matter; whoever still uses the site gets an error, and can close it."""
    site = open_site()
    (node,) = site.start_nodes([NodeSpec("n1")])
    program = node.spawn(["sleep", "999"], on_line=print, on_error_line=print)
    assert runtime.clean(site_id=site.id) == []
    assert len(runtime.clean(site_id=site.id, include_running=True)) == 1
    assert program.wait(60) == 137
    with pytest.raises(HarnessError, match="node n1 is gone"):
        node.run(["true"])
    with pytest.raises(HarnessError, match="is gone"):
        site.start_nodes([NodeSpec("n2")])


def test_a_sweep_ends_open_sites(runtime: LocalRuntime) -> None:
    """As at an interrupt: within the time, and nothing can be created any more."""
    site = runtime.open_site(f"test-{secrets.token_hex(4)}")
    site.start_nodes([NodeSpec("n1")])
    assert runtime.sweep(10.0) == []
    assert left.find(site.id) == []
    with pytest.raises(HarnessError, match="is closed"):
        site.start_nodes([NodeSpec("n2")])


# What a node can reach ------------------------------------------------------------------------------------------------

REACHES = """
import os, socket, time
def tried(what, action):
    try:
        print(what, action())
    except OSError as error:
        print(what, "refused")
tried("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600))
tried("sysctl", lambda: open("/proc/sys/kernel/panic", "w").write("0"))
tried("sysrq", lambda: open("/proc/sysrq-trigger", "w").close())
tried("hostname", lambda: os.uname().nodename)
tried("mount", lambda: os.system("mount -t tmpfs x /mnt 2>/dev/null") and "refused")
tried("files", lambda: os.path.exists("MARK"))
tried("old root", lambda: os.path.exists("/proc/1/rootMARK"))
tried("interfaces", lambda: sorted(name for _, name in socket.if_nameindex()))
"""


def test_a_node_reaches_nothing_of_the_machine(open_site: Callable[[], Any], tmp_path: Path) -> None:
    """Neither its clock nor its settings, mounts, files or interfaces; as root no more than as anybody."""
    (node,) = open_site().start_nodes([NodeSpec("n1")])
    (tmp_path / "mark").touch()
    said = node.run(["python3", "-c", REACHES.replace("MARK", str(tmp_path / "mark"))]).stdout.decode().splitlines()
    sysrq = "refused" if Path("/proc/sysrq-trigger").exists() else said[2].removeprefix("sysrq ")
    assert said == [
        "clock refused",
        "sysctl refused",
        f"sysrq {sysrq}",
        "hostname n1",
        "mount refused",
        "files False",
        "old root False",
        "interfaces ['eth0', 'lo']",
    ]


def test_tmpfs_is_empty_at_each_start_and_everything_else_is_kept(open_site: Callable[[], Any]) -> None:
    """Also what an image calls a volume; and nothing of one node is seen on another."""
    script = "echo $(ls /data) / $(ls /var/lib/etcd); touch /data/x /var/lib/etcd/y; exec sleep 12345"
    one, two = open_site().start_nodes([NodeSpec("n1"), NodeSpec("n2")])
    for node in (one, two):
        node.start_service(ServiceSpec("etcd", command=["sh", "-c", script], tmpfs=["/data"]))
    kill_service(one)
    one.restart_service()
    eventually("its second start", lambda: one.logs().count(b"\n") == 2)
    assert one.logs().decode().split("\n")[:2] == ["/", "/ y"]
    eventually("the other's start", lambda: two.logs() == b"/\n")


def test_what_a_service_leaves_running_ends_with_it(open_site: Callable[[], Any]) -> None:
    """A child that has left its session goes on after a kill of the main process in no container, nor here."""
    (node,) = open_site().start_nodes([NodeSpec("n1")])
    node.start_service(ServiceSpec("etcd", command=["sh", "-c", "setsid sleep 34567 & exec sleep 12345"]))
    eventually("both", lambda: len(pids(node, "sleep", "34567")) == 1)
    kill_service(node)
    eventually("its end", lambda: not node.service_running()[0])
    assert pids(node, "sleep", "34567") == []


def test_a_service_that_can_not_start_is_told(open_site: Callable[[], Any]) -> None:
    """With what was to be run, and why it can't be; another start of it may succeed."""
    (node,) = open_site().start_nodes([NodeSpec("n1")])
    with pytest.raises(HarnessError, match=r"starting the service on n1: .*nonesuch.*No such file"):
        node.start_service(ServiceSpec("node", command=["/nonesuch"]))
    assert node.service_running()[0] is False


def test_large_requests_arrive_whole(open_site: Callable[[], Any]) -> None:
    """What doesn't fit into a packet goes another way: a megabyte of a file, a hundred long words."""
    (node,) = open_site().start_nodes([NodeSpec("n1")])
    words = ["x" * 1000] * 100
    assert node.run(["sh", "-c", "echo $#", "sh", *words]).stdout == b"100\n"
    spec = ServiceSpec("etcd", command=["sh", "-c", "wc -c < /etc/big"], files={"/etc/big": b"y" * 1_000_000})
    node.start_service(spec)
    eventually("its count", lambda: node.logs() == b"1000000\n")


def test_a_node_that_is_stopped_keeps_nobody_else_from_working(open_site: Callable[[], Any]) -> None:
    """Requests to its first process have no answer, then no room; the other node has both; and all is removed."""
    one, two = open_site().start_nodes([NodeSpec("n1"), NodeSpec("n2")])
    stop(one.state.pid)

    def refused() -> str:
        with pytest.raises(HarnessError) as error:
            one._ask("look", "looking", timeout_seconds=0.0, filler="x" * 20_000)
        return str(error.value)

    assert "gave no answer within" in refused()
    eventually("no more room", lambda: "takes no requests" in refused())
    assert two.run(["echo", "well"]).stdout == b"well\n"


# Watching -------------------------------------------------------------------------------------------------------------


def test_each_end_of_a_service_is_told_however_soon_it_is_started_again(open_site: Callable[[], Any]) -> None:
    """Killed and started again as fast as can be: so many ends, and so many beginnings, in turn."""
    site = open_site()
    (node,) = site.start_nodes([NodeSpec("n1")])
    node.start_service(SLEEPER)
    seen: list[Seen] = []
    with site.watch(seen.append, print) as watch:
        for _ in range(6):
            kill_service(node)
            node.restart_service()
        watch.look()
    assert [(each.what, each.over) for each in seen] == 6 * [("killed", False), ("killed", True)]
    assert [each.wall_ns for each in seen] == sorted(each.wall_ns for each in seen)


def test_each_act_of_others_is_told_once_in_order_and_with_its_time(open_site: Callable[[], Any]) -> None:
    """Stopped, cut off, ended; a look adds nothing to it."""
    site = open_site()
    one, two = site.start_nodes([NodeSpec("n1"), NodeSpec("n2")])
    one.start_service(SLEEPER)
    kill_service(one)
    eventually("its end", lambda: not one.service_running()[0])
    seen: list[Seen] = []
    notes: list[str] = []

    def network(*words: str) -> None:
        subprocess.run([*NSENTER, f"--target={two.state.pid}", "/bin/ip", *words], check=True)

    with site.watch(seen.append, notes.append) as watch:
        assert [(each.node, each.part, each.what, each.over) for each in seen] == [("n1", "service", "killed", False)]
        one.restart_service()
        before = time.time_ns()
        stop(two.state.pid)
        watch.look()
        os.kill(two.state.pid, signal.SIGCONT)
        watch.look()
        network("link", "set", "eth0", "down")
        watch.look()
        network("link", "set", "eth0", "up")  # which has lost its IPv6 address by that
        watch.look()
        watch.look()
        os.kill(two.state.pid, signal.SIGKILL)
        eventually("its end", lambda: seen[-1].what == "killed")
        after = time.time_ns()
        watch.look()
    assert [(each.node, each.part, each.what, each.over) for each in seen[1:]] == [
        ("n1", "service", "killed", True),
        ("n2", "node", "paused", False),
        ("n2", "node", "paused", True),
        ("n2", "node", "disconnected", False),
        ("n2", "node", "disconnected", True),
        ("n2", "node", "killed", False),
    ]
    assert seen[5].restored is False
    assert before <= seen[-1].wall_ns <= after
    at_two = [each.wall_ns for each in seen if each.node == "n2"]
    assert at_two == sorted(at_two)
    assert notes == []


GREEDY = """
import os, time
while not os.path.exists("/go"):
    time.sleep(0.01)
held = [bytearray(1 << 20) for _ in range(200)]
time.sleep(100)
"""


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group of 32 MB, for processes that are put into it."""
    root, version_1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
    group = (version_1 if version_1.is_dir() else root) / f"test-{secrets.token_hex(4)}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")).write_text(str(32 << 20))
    yield group
    eventually("its processes' end", lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can limit the memory of a service here, to see it run out")
def test_out_of_memory_is_told_from_any_other_kill(open_site: Callable[[], Any], small_memory: Path) -> None:
    """By the kernel's count, which rose since the last look; and that it was this count is said."""
    site = open_site()
    (node,) = site.start_nodes([NodeSpec("n1")])
    node.start_service(ServiceSpec("node", command=["python3", "-c", GREEDY]))
    seen: list[Seen] = []
    with site.watch(seen.append, print) as watch:
        process = node.state.services["service"].process
        (small_memory / "cgroup.procs").write_text(str(process))
        Path(f"/proc/{process}/root/go").touch()
        eventually("its end", lambda: seen)
        node.restart_service()
        watch.look()
        again = eventually("its second run", lambda: pids(node, "python3", "-c", GREEDY))
        kill = f"kill -KILL {again[0]}"
        assert node.run(["sh", "-c", kill]).exit_code == 0
        eventually("its second end", lambda: len(seen) == 3)
    assert [(each.what, each.over) for each in seen] == [("oom", False), ("oom", True), ("killed", False)]
    assert "for want of memory" in seen[0].detail


# What is refused ------------------------------------------------------------------------------------------------------


def test_everything_that_is_needed_is_tried() -> None:
    """And works here, or no other test of this module could have passed."""
    found = probe.findings()
    assert len(found) == 8
    assert [each.name for each in found if not each.works] == []
    assert [site for site in left.find() if site.id.startswith(f"probe-{os.getpid()}-")] == []


FINDINGS = """
from harness.runtime.local import probe
lacking = probe.obstacle()
print(lacking.name, lacking.detail, lacking.remedy, sep="|") if lacking else print("nothing")
"""


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("echo 0 > /proc/sys/user/max_user_namespaces", r"user namespaces\|.*No space left.*\|.*max_user_namespaces"),
        ("echo 0 > /proc/sys/user/max_net_namespaces", r"namespaces for network.*\|.*No space left"),
        (
            "mount -t tmpfs none /proc/sys",
            r"a /proc of its own\|mounting proc.*not permitted\|.*systempaths=unconfined",
        ),
    ],
)
def test_what_the_machine_refuses_is_named_with_its_remedy(setting: str, said: str, tmp_path: Path) -> None:
    """As other machines are set, tried in a user namespace where we may set it."""
    script = f"{setting} && exec {sys.executable} -c '{FINDINGS}'"
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert re.match(said, done.stdout), done


def test_a_machine_that_refuses_is_an_error_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime can't be constructed, so that no trial begins, and `auto` can tell why."""
    lacking = probe.Finding("user namespaces", False, True, "not permitted", "run it as root")
    monkeypatch.setattr(probe, "findings", lambda: [lacking])
    with pytest.raises(RuntimeUnavailable, match=r"user namespaces can't be had \(not permitted\)\. Run it as root"):
        LocalRuntime()


# Its programs' beginnings ---------------------------------------------------------------------------------------------

WITHOUT_A_LIBRARY = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
from harness.runtime.local.inside import programs, site
sys.modules.pop("warnings", None)  # Python 3.11 has it loaded by now, whoever asked for it; 3.13 hasn't
importlib.reload(programs)
class Gone:
    def find_spec(self, name, *_):
        raise ImportError(f"{name} is looked for in a root that has another library")
sys.meta_path.insert(0, Gone())
pid = programs.start(["true"], {"PATH": "/usr/bin:/bin"}, (0, 1, 2), lambda: None)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_program_starts_where_nothing_more_can_be_imported() -> None:
    """A root has a Python of its own version, or none: what os.execvpe imports by itself must be there before."""
    root = str(Path(__file__).parent.parent.parent)
    words = [sys.executable, "-I", "-S", "-c", WITHOUT_A_LIBRARY, root]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "0\n", done.stderr

"""What this machine can and can't do for trials: each thing tried, with the reason and the remedy where it fails.

`examine` looks at the engine, the images and the disk, and tries every kind of fault in a throwaway site of two nodes
and a service, which is removed whatever happens.
"""

from __future__ import annotations

import inspect
import json
import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness import images
from harness.doctor import probe
from harness.errors import FencepostError, HarnessError, RuntimeUnavailable
from harness.images.maker import DEBIAN_OFFICIAL
from harness.images.registry import Registries
from harness.runtime.base import NodeSpec, ServiceSpec
from harness.runtime.docker import DockerRuntime

Status = Literal["ok", "limited", "missing", "failed", "unknown"]

GIB = 1024**3
DISK_NEEDED, DISK_WISHED = 1 * GIB, 5 * GIB
MEMORY_NEEDED, MEMORY_WISHED = 1 * GIB, 3 * GIB
"""A trial with five contenders, three ZooKeeper servers and PostgreSQL takes 0.8 GiB (measured)."""

NEEDED_IMAGES = ("node", "contender", "postgres")
"""Every trial needs these, and the image of its system."""

PROBE_SECONDS = 30.0
NOBODY = "65534"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    `needed` says whether trials need it. `status`: `ok` · `limited` (less of it: the detail says what is missing) ·
    `missing` (not the machine's fault: `fencepost images` gets it) · `failed` · `unknown` (couldn't be tried). `remedy`
    is empty when there is nothing to do.
    """

    name: str
    status: Status
    needed: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Examination:
    """All findings. `ok` when everything that is needed is there."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether trials can run."""
        return all(f.status in ("ok", "limited") for f in self.findings if f.needed)

    @property
    def only_images_missing(self) -> bool:
        """Whether nothing but images keeps trials from running; what nodes can do may be untried for want of them."""
        lacking = [f for f in self.findings if f.needed and f.status not in ("ok", "limited")]
        return any(f.status == "missing" for f in lacking) and all(
            f.status == "missing" or f is _UNTRIED for f in lacking
        )

    def as_json(self) -> dict[str, Any]:
        """`{"ok", "only_images_missing", "findings": [{"name", "status", "needed", "detail", "remedy"}]}`."""
        return {
            "ok": self.ok,
            "only_images_missing": self.only_images_missing,
            "findings": [asdict(finding) for finding in self.findings],
        }


_UNTRIED = Finding(
    "node",
    "unknown",
    True,
    "what a node can do here (partition, freeze, clock, …) is tried once the image node is there",
)


@dataclass(frozen=True)
class _Capability:
    """How a probe's answer is told: what lacks without it, whether trials can run then, and the remedy."""

    name: str
    probe: str
    needed: bool
    lacking: str
    remedy: str


_CAPABILITIES = (
    _Capability(
        "network",
        "ipv4",
        True,
        "no trial can run",
        "look for a firewall on this host that drops traffic on Docker's bridges",
    ),
    _Capability(
        "network IPv6",
        "ipv6",
        False,
        "trials run on IPv4 alone",
        "let Docker use IPv6: load the kernel's ipv6 module, and set net.ipv6.conf.all.disable_ipv6=0",
    ),
    _Capability(
        "partition",
        "iptables",
        True,
        "no partition can be made",
        "load the kernel modules ip_tables and iptable_filter, or nf_tables, on the Docker host",
    ),
    _Capability(
        "partition IPv6",
        "ip6tables",
        False,
        "a partition would leave IPv6 open",
        "load the kernel modules ip6_tables and ip6table_filter, or nf_tables, on the Docker host",
    ),
    _Capability(
        "freeze",
        "freeze",
        True,
        "no process can be frozen",
        "the engine must share pid namespaces between containers (--pid container:…) and allow the capability KILL",
    ),
    _Capability(
        "clock",
        "memory",
        False,
        "the clock fault is left out",
        "allow the capability SYS_PTRACE, and kernel.yama.ptrace_scope below 3, on the Docker host",
    ),
    _Capability("event times", "clocks", True, "no event can be stamped", "use a kernel with CLOCK_BOOTTIME"),
)


def examine(
    say: Callable[[str], None] = lambda line: None,
    opened: Callable[[DockerRuntime], None] = lambda runtime: None,
) -> Examination:
    """Looks at everything. `say` gets a line before each step that takes a while.

    `opened` gets the runtime before anything is created in it, so that another thread can `sweep` it. Never raises for
    what is wrong with the machine: that becomes a finding.
    """
    findings: list[Finding] = [_python(), _results_disk()]
    try:
        runtime = DockerRuntime()
        opened(runtime)
        facts = runtime.describe()
    except FencepostError as error:
        findings.insert(0, Finding("docker", "failed", True, str(error), "start Docker, or install it"))
        return Examination(tuple(findings))
    findings[:0] = [_docker(facts), _storage(facts), _size(facts)]
    client = runtime.engine.client
    registry = _InBackground(lambda: Registries(client).refusal(DEBIAN_OFFICIAL))
    present = images.listing(client)
    findings += _images(present)
    if present["node"] is None:
        findings.append(_UNTRIED)
    else:
        say("trying faults in a throwaway node")
        findings += _node_findings(runtime)
    findings.append(_registry(registry.result()))
    return Examination(tuple(findings))


def _docker(facts: dict[str, str]) -> Finding:
    told = (
        f"{facts['engine']}, API {facts['api']}, cgroup {facts['cgroup']}, runtime {facts['runtime']}, "
        f"kernel {facts['kernel']} {facts['architecture']}, {facts['os']}"
    )
    return Finding("docker", "ok", True, told)


def _storage(facts: dict[str, str]) -> Finding:
    driver = facts["storage"]
    if driver in ("vfs", "fuse-overlayfs"):
        slow = "copies each image for each container" if driver == "vfs" else "runs in user space"
        return Finding(
            "storage", "limited", False, f"{driver}, which {slow}: starting nodes is slower", "use overlay2 if you can"
        )
    return Finding("storage", "ok", False, driver)


def _size(facts: dict[str, str]) -> Finding:
    cores, memory = int(facts["cpus"]), int(facts["memory_bytes"])
    told = f"{cores} core{'s' if cores > 1 else ''}, {memory / GIB:.1f} GiB of memory"
    if memory < MEMORY_NEEDED:
        return Finding("size", "failed", True, told, f"give the Docker host {MEMORY_WISHED / GIB:.0f} GiB of memory")
    if memory < MEMORY_WISHED or cores < 2:
        return Finding("size", "limited", True, told, "run trials one at a time (-j 1)")
    return Finding("size", "ok", True, told)


def _disk(name: str, free: int, where: str, remedy: str) -> Finding:
    told = f"{free / GIB:.1f} GiB free {where}"
    if free < DISK_NEEDED:
        return Finding(name, "failed", True, told, remedy)
    return Finding(name, "limited" if free < DISK_WISHED else "ok", True, told, remedy if free < DISK_WISHED else "")


def _results_disk() -> Finding:
    return _disk("disk (results)", shutil.disk_usage(Path.cwd()).free, f"at {Path.cwd()}", "remove old results")


def _python() -> Finding:
    import platform

    return Finding("python", "ok", True, f"{platform.python_implementation()} {platform.python_version()}")


def _images(present: dict[str, images.ImageRef | None]) -> list[Finding]:
    missing = [name for name, image in present.items() if image is None]
    systems = [name for name in present if name not in NEEDED_IMAGES]
    remedy = "fencepost images" if len(missing) == len(present) else f"fencepost images {' '.join(missing)}"
    have = ", ".join(
        f"{name} {image.version or image.reference.rpartition(':')[2]} ({image.origin})"
        for name, image in present.items()
        if image
    )
    if not missing:
        return [Finding("images", "ok", True, have)]
    lacks_needed = any(name in NEEDED_IMAGES for name in missing) or set(systems) <= set(missing)
    told = f"missing: {', '.join(missing)}" + (f"; present: {have}" if have else "")
    return [Finding("images", "missing" if lacks_needed else "limited", True, told, remedy)]


def _registry(refusal: str | None) -> Finding:
    if refusal is None:
        return Finding("registry", "ok", False, f"{DEBIAN_OFFICIAL} can be pulled")
    return Finding(
        "registry", "limited", False, f"out of reach ({refusal}): images are built from Debian's packages instead"
    )


def _node_findings(runtime: DockerRuntime) -> list[Finding]:
    try:
        answer, notes = _probe(runtime)
    except FencepostError as error:
        remedy = "" if isinstance(error, RuntimeUnavailable) else "`docker info` and the engine's log may tell more"
        return [Finding("node", "failed", True, str(error), remedy)]
    return _tell(answer, notes)


def _tell(answer: dict[str, Any], notes: Sequence[str]) -> list[Finding]:
    """What a probe's answer (harness/doctor/probe.py) means for trials."""
    findings = []
    for capability in _CAPABILITIES:
        seen = answer["probes"][capability.probe]
        if seen["ok"]:
            findings.append(Finding(capability.name, "ok", capability.needed, seen["detail"]))
            continue
        status: Status = "failed" if capability.needed else "limited"
        reason = "; ".join([seen["detail"], *(note for note in notes if capability.probe == "ipv6")])
        told = f"{capability.lacking}: {reason}"
        findings.append(Finding(capability.name, status, capability.needed, told, capability.remedy))
    findings.append(
        _disk("disk (Docker)", answer["disk_free_bytes"], "for containers", "`docker system df` shows what fills it")
    )
    return findings


def _probe(runtime: DockerRuntime) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Tries everything in a throwaway site, and removes it. Returns the probe's answer and the site's notes."""
    site = runtime.open_site(f"doctor-{uuid.uuid4().hex[:8]}")
    try:
        node, peer = site.start_nodes([NodeSpec("probe"), NodeSpec("peer", faultable=False)])
        # A service of another user in a container of its own, as all systems under test are.
        user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        command = ("setpriv", *user, probe.SERVICE, "infinity")
        node.start_service(ServiceSpec("node", command))
        source = inspect.getsource(probe).encode()
        done = node.run(["python3", "-", *peer.addresses], stdin=source, timeout_seconds=PROBE_SECONDS)
        if done.exit_code != 0:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise HarnessError(f"the probe on the node failed: {words[-1] if words else f'exit {done.exit_code}'}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer, tuple(site.notes)
    finally:
        site.close()


class _InBackground:
    """A call that goes on while other things are done."""

    def __init__(self, call: Callable[[], str | None]) -> None:
        self._result: list[str | None] = []
        self._thread = threading.Thread(target=lambda: self._result.append(call()), daemon=True)
        self._thread.start()

    def result(self) -> str | None:
        """Waits for the end."""
        self._thread.join()
        return self._result[0] if self._result else "asking for it failed"

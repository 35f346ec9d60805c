"""What a node can do: every kind of fault tried in a throwaway site of two nodes and a service, on any runtime."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.doctor import probe
from harness.doctor.findings import Finding, Status, disk
from harness.errors import FencepostError, HarnessError, RuntimeUnavailable
from harness.runtime.base import NodeSpec, Runtime, ServiceSpec

PROBE_SECONDS = 30.0
NOBODY = "65534"
AS_NOBODY = {"docker": ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"), "local": ()}
"""What makes a service another user's than the agent's, as all systems under test are; `local` does so by itself."""

PLACES = {"docker": "the Docker host", "local": "this machine"}
"""Where a remedy is to be applied."""
OTHER_REMEDIES = {
    ("docker", "ipv4"): "look for a firewall on this host that drops traffic on Docker's bridges",
    ("docker", "ipv6"): "let Docker use IPv6: load the kernel's ipv6 module, and set net.ipv6.conf.all.disable_ipv6=0",
    ("docker", "freeze"): "the engine must share pid namespaces between containers (--pid container:…) and allow the "
    "capability KILL",
    ("docker", "memory"): "allow the capability SYS_PTRACE, and kernel.yama.ptrace_scope below 3, on the Docker host",
}
"""What helps on one runtime alone: (runtime, probe) -> remedy."""


@dataclass(frozen=True)
class Capability:
    """How a probe's answer is told: what lacks without it, whether trials can run then, and the remedy."""

    name: str
    probe: str
    needed: bool
    lacking: str
    remedy: str

    def remedy_on(self, runtime: str) -> str:
        """What helps there."""
        return OTHER_REMEDIES.get((runtime, self.probe), self.remedy.format(place=PLACES[runtime]))


CAPABILITIES = (
    Capability("network", "ipv4", True, "no trial can run", "load the kernel modules bridge and veth on {place}"),
    Capability(
        "network IPv6",
        "ipv6",
        False,
        "trials run on IPv4 alone",
        "load the kernel's ipv6 module on {place}, and boot without ipv6.disable=1",
    ),
    Capability(
        "partition",
        "iptables",
        True,
        "no partition can be made",
        "load the kernel modules ip_tables and iptable_filter, or nf_tables, on {place}",
    ),
    Capability(
        "partition IPv6",
        "ip6tables",
        False,
        "a partition would leave IPv6 open",
        "load the kernel modules ip6_tables and ip6table_filter, or nf_tables, on {place}",
    ),
    Capability("freeze", "freeze", True, "no process can be frozen", "allow signals between processes on {place}"),
    Capability(
        "clock", "memory", False, "the clock fault is left out", "set kernel.yama.ptrace_scope below 3 on {place}"
    ),
    Capability("event times", "clocks", True, "no event can be stamped", "use a kernel with CLOCK_BOOTTIME"),
)


def examine_node(runtime: Runtime) -> list[Finding]:
    """Tries it all. Never raises for what doesn't work: that is a finding."""
    try:
        answer, notes = _probe(runtime)
    except FencepostError as error:
        usual = "`docker info` and the engine's log may tell more" if runtime.name == "docker" else ""
        remedy = "" if isinstance(error, RuntimeUnavailable) else usual
        return [Finding("node", "failed", True, str(error), remedy, runtime.name)]
    return tell(answer, notes, runtime.name)


def tell(answer: dict[str, Any], notes: Sequence[str], runtime: str) -> list[Finding]:
    """What a probe's answer (harness/doctor/probe.py) means for trials."""
    findings = []
    for capability in CAPABILITIES:
        seen = answer["probes"][capability.probe]
        if seen["ok"]:
            findings.append(Finding(capability.name, "ok", capability.needed, seen["detail"], runtime=runtime))
            continue
        status: Status = "failed" if capability.needed else "limited"
        reason = "; ".join([seen["detail"], *(note for note in notes if capability.probe == "ipv6")])
        told = f"{capability.lacking}: {reason}"
        remedy = capability.remedy_on(runtime)
        findings.append(Finding(capability.name, status, capability.needed, told, remedy, runtime))
    free = answer["disk_free_bytes"]
    if runtime == "docker":
        told_by = "`docker system df` shows what fills it"
        findings.append(disk("disk (Docker)", free, "for containers", told_by, runtime))
    return findings


def _probe(runtime: Runtime) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Tries everything in a throwaway site, and removes it. Returns the probe's answer and the site's notes."""
    site = runtime.open_site(f"doctor-{uuid.uuid4().hex[:8]}")
    try:
        node, peer = site.start_nodes([NodeSpec("probe"), NodeSpec("peer", faultable=False)])
        node.start_service(ServiceSpec("node", (*AS_NOBODY[runtime.name], probe.SERVICE, "infinity")))
        source = inspect.getsource(probe).encode()
        done = node.run(["python3", "-", *peer.addresses], stdin=source, timeout_seconds=PROBE_SECONDS)
        if done.exit_code != 0:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise HarnessError(f"the probe on the node failed: {words[-1] if words else f'exit {done.exit_code}'}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer, tuple(site.notes)
    finally:
        site.close()

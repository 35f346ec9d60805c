"""Links, cut by iptables and ip6tables in chains of our own."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from nemesis.agent.arguments import family_of, take, take_port
from nemesis.agent.base import Refused, read_at_once

CHAINS = ("FENCEPOST-IN", "FENCEPOST-OUT")
HOOKS = (("INPUT", "FENCEPOST-IN"), ("OUTPUT", "FENCEPOST-OUT"))
CHAINS_RE = re.compile(r"\bFENCEPOST-(IN|OUT)\b")


class Firewall(object):
    """Cuts links. The two chains of ours are rewritten as a whole in one transaction; no other chain is flushed.

    Docker's DNS and what a host's owner has set up live in other chains, which keep working. The default is to drop
    what *arrives*: a dropped outgoing packet makes sendto() fail with EPERM, which no broken cable does, and which
    programs take for something else (memberlist, in Consul, then does not suspect the peer).
    """

    def __init__(self) -> None:
        self._backend: Optional[str] = None
        self.cuts: Dict[str, List[Tuple[int, str, str]]] = {}
        self._hooked = False

    @staticmethod
    def _run(argv: Sequence[str], stdin: bytes = b"") -> Tuple[int, str, str]:
        try:
            done = subprocess.run(
                argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20, env=_tool_environment()
            )
        except FileNotFoundError:
            return 127, "", "%s: not found" % argv[0]
        except subprocess.TimeoutExpired:
            return 124, "", "%s: no answer within 20 s" % argv[0]
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace").strip()

    def _both(self, make: Callable[[str], Tuple[Sequence[str], bytes]]) -> Dict[int, Tuple[int, str, str]]:
        """Run one command for each family, side by side."""
        results: Dict[int, Tuple[int, str, str]] = {}

        def one(version: int, tool: str) -> None:
            argv, stdin = make(tool)
            results[version] = self._run(argv, stdin)

        other = threading.Thread(target=one, args=(6, "ip6tables"))
        other.start()
        one(4, "iptables")
        other.join()
        return results

    @staticmethod
    def _present() -> List[str]:
        """The suffixes of the tools installed: "-nft", "-legacy", or none where there is no choice."""
        folders = _tool_environment()["PATH"].split(":")
        suffixes = ("-nft", "-legacy")
        return [s for s in suffixes if any(os.access("%s/iptables%s" % (f, s), os.X_OK) for f in folders)] or [""]

    @staticmethod
    def _unused(suffix: str) -> bool:
        """Whether the old back end has no filter table in this namespace, so that there is nothing to look for."""
        if suffix != "-legacy":
            return False
        for name in ("ip_tables_names", "ip6_tables_names"):
            try:
                if b"filter" in read_at_once("/proc/self/net/" + name):
                    return False
            except OSError:
                continue  # its module isn't loaded
        return True

    @property
    def backend(self) -> str:
        """The suffix of the tools that work here, found out at first need."""
        if self._backend is None:
            tried = []
            for suffix in self._present():
                answers = self._list(suffix)
                bad = ["ip%stables%s: %s" % ("6" if v == 6 else "", suffix, a[2]) for v, a in answers.items() if a[0]]
                if not bad:
                    self._backend = suffix
                    break
                tried.extend(bad)
            else:
                raise Refused("links can't be cut on this node: " + "; ".join(tried))
        return self._backend

    def _list(self, suffix: str, *more: str) -> Dict[int, Tuple[int, str, str]]:
        return self._both(lambda tool: ((tool + suffix, "-w", "10") + (more or ("-S",)), b""))

    def _payload(self, version: int, hook: bool, unhook: bool) -> bytes:
        lines = ["*filter"]
        lines += [":%s - [0:0]" % chain for chain in CHAINS]  # declaring a chain empties it, and only it
        if hook:
            lines += ["-I %s 1 -j %s" % pair for pair in HOOKS]
        if version == 6 and self.cuts:
            # IPv6 finds its neighbours by packets of its own, IPv4 by ARP, which no rule sees. Were they dropped, a cut
            # in one direction would soon be one in both, and IPv6 slower to mend.
            lines += ["-A %s -p icmpv6 --icmpv6-type %d -j RETURN" % (c, kind) for c in CHAINS for kind in (135, 136)]
        for rules in self.cuts.values():
            lines += ["-A %s %s" % (chain, match) for v, chain, match in rules if v == version]
        if unhook:
            lines += ["-D %s -j %s" % pair for pair in HOOKS]
            lines += ["-X %s" % chain for chain in CHAINS]
        return ("\n".join(lines) + "\nCOMMIT\n").encode()

    def _apply(self, hook: bool = False, unhook: bool = False) -> None:
        backend = self.backend
        versions = {"iptables": 4, "ip6tables": 6}
        answers = self._both(
            lambda tool: (
                (tool + backend + "-restore", "-w", "10", "--noflush"),
                self._payload(versions[tool], hook, unhook),
            )
        )
        bad = ["IPv%d: %s" % (version, answer[2]) for version, answer in sorted(answers.items()) if answer[0]]
        if bad:
            raise Refused("iptables%s-restore failed: %s" % (backend, "; ".join(bad)))

    def cut(self, key: str, rules: List[Tuple[int, str, str]]) -> None:
        """Put rules in force under a name, in one transaction for each family."""
        self.cuts[key] = rules
        self._apply(hook=not self._hooked)
        self._hooked = True

    def mend(self, key: str) -> None:
        """Take the rules of one name out; with the last one goes every trace of ours."""
        self.cuts.pop(key, None)
        if self._hooked:
            self._apply(unhook=not self.cuts)
            self._hooked = bool(self.cuts)

    def state(self) -> Tuple[int, int, Dict[str, int]]:
        """(hooks, dropping rules, packets dropped in and out) of ours, as the kernel has them now."""
        hooks = drops = 0
        dropped = dict.fromkeys(("in", "out"), 0)
        for status, text, _ in self._list(self.backend, "-S", "-v").values():
            for line in text.splitlines() if status == 0 else ():
                match = re.match(r"-A (FENCEPOST-(?:IN|OUT)) .*-c (\d+) \d+ -j DROP", line)
                if match:
                    drops += 1
                    dropped["in" if match.group(1) == CHAINS[0] else "out"] += int(match.group(2))
                elif re.match(r"-A (INPUT|OUTPUT) .*-j FENCEPOST-", line):
                    hooks += 1
        return hooks, drops, dropped

    def left(self) -> List[str]:
        """What of ours is in force now, read from the kernel in every back end that there is."""
        found = []
        for suffix in self._present():
            if self._unused(suffix):
                continue
            for version, (status, text, error) in sorted(self._list(suffix).items()):
                if status == 0:
                    found += ["IPv%d: %s" % (version, line) for line in text.splitlines() if CHAINS_RE.search(line)]
                elif suffix == self._backend:
                    found.append("IPv%d: the rules can't be read: %s" % (version, error))
        return found

    def purge(self) -> None:
        """Remove our chains and their hooks from every back end, whoever put them there."""
        self.cuts.clear()
        self._hooked = False
        problems = []
        for suffix in self._present():
            if self._unused(suffix):
                continue
            for version, (status, text, _) in self._list(suffix).items():
                lines = [line for line in text.splitlines() if CHAINS_RE.search(line)] if status == 0 else []
                if not lines:
                    continue
                hooks = [line[3:] for line in lines if line.startswith("-A ") and not line.startswith("-A FENCEPOST-")]
                chains = [line.split()[1] for line in lines if line.startswith("-N ")]
                payload = ["*filter"] + [":%s - [0:0]" % chain for chain in chains]
                payload += ["-D " + hook for hook in hooks] + ["-X %s" % chain for chain in chains] + ["COMMIT", ""]
                tool = "iptables" if version == 4 else "ip6tables"
                argv = (tool + suffix + "-restore", "-w", "10", "--noflush")
                status, _, error = self._run(argv, "\n".join(payload).encode())
                if status:
                    problems.append("%s%s: %s" % (tool, suffix, error))
        if problems:
            raise Refused("our chains could not be removed: " + "; ".join(problems))


def _tool_environment() -> Dict[str, str]:
    return {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin", "LC_ALL": "C"}


def rules_from(command: Dict[str, Any]) -> List[Tuple[int, str, str]]:
    """`rules` of a cut: [{"addresses": […], "direction": "in"|"out"|"both", "local_port"?, "remote_port"?}, …]."""
    rules: List[Tuple[int, str, str]] = []
    for rule in take(command, "rules", list):
        if not isinstance(rule, dict):
            raise Refused("cut: a rule must be an object, not %r" % (rule,))
        rule = dict(rule, op="cut")
        direction = take(rule, "direction", str, "in")
        if direction not in ("in", "out", "both"):
            raise Refused("cut: 'direction' must be in, out or both, not %r" % direction)
        local, remote = take_port(rule, "local_port", None), take_port(rule, "remote_port", None)
        addresses = take(rule, "addresses", list)
        if not addresses:
            raise Refused("cut: 'addresses' is empty")
        for address in addresses:
            version = family_of(address)
            for word, chain, side, near, far in (
                ("in", "FENCEPOST-IN", "-s", "--dport", "--sport"),
                ("out", "FENCEPOST-OUT", "-d", "--sport", "--dport"),
            ):
                if direction not in (word, "both"):
                    continue
                ports = "".join(" %s %d" % (flag, port) for flag, port in ((near, local), (far, remote)) if port)
                for protocol in (" -p tcp", " -p udp") if ports else ("",):
                    rules.append((version, chain, "%s %s%s%s -j DROP" % (side, address, protocol, ports)))
    if not rules:
        raise Refused("cut: 'rules' is empty")
    return rules

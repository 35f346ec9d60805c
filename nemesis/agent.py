"""The agent: applies faults on one node, measures them there, and undoes them whatever happens.

One file, standard library only, any python3 from 3.7 on, run as root on the node. It is sent over the stream that it is
then spoken to (`nemesis.link`), in JSON lines: `{"id": 1, "op": "freeze", …}` is answered by `{"id": 1, "ok": {…}}` or
`{"id": 1, "error": "a sentence"}`. Answers come in any order. Commands that look (http, tcp, probe, heard) run side by
side; commands that change something run one after the other.

It is a dead man's switch, in three layers, because a fault that outlives its trial is worse than no fault:

1. When stdin ends, or a signal asks it to end, the agent undoes what it holds, verifies that, and leaves.
2. When the agent itself is killed, its *guardian*, a child that does nothing but wait for that, undoes what the journal
   says was held.
3. When the guardian is gone too, the next agent on the node undoes what the journal says, and tells so in `hello`.

The journal is written before anything is applied. Every object in it is safe to undo twice, or when nothing was done.
Times are CLOCK_BOOTTIME in ns, the clock that no fault of ours moves.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import errno
import fcntl
import json
import os
import queue
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import zlib
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

VERSION = 1
MAX_LINE = 16 * 1024 * 1024
MAX_WORKERS = 32
CHAINS = ("FENCEPOST-IN", "FENCEPOST-OUT")
HOOKS = (("INPUT", "FENCEPOST-IN"), ("OUTPUT", "FENCEPOST-OUT"))
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
CLOCK_BOOTTIME = 7


class Refused(Exception):
    """A command that can't be done, with the reason as a sentence; becomes the `error` of the answer."""


def now_ns() -> int:
    """CLOCK_BOOTTIME in ns."""
    return time.clock_gettime_ns(CLOCK_BOOTTIME)


def log(text: str) -> None:
    """A line for the harness' logs. Never fails: the reader may be gone, and the undoing must go on."""
    try:
        sys.stderr.write(text.rstrip() + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


# -- arguments: everything that comes over stdin is checked here before it is used --------------------------------


def take(command: Dict[str, Any], name: str, kind: Any, default: Any = ...) -> Any:
    """An argument of a command. Refused when it is missing without a default, or of another type."""
    value = command.get(name)
    if value is None:
        if default is ...:
            raise Refused("%s: argument %r is missing" % (command.get("op"), name))
        return default
    good = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if not good:
        raise Refused("%s: argument %r must be %s, not %r" % (command.get("op"), name, _kind_name(kind), value))
    return value


def _kind_name(kind: Any) -> str:
    return " or ".join(k.__name__ for k in kind) if isinstance(kind, tuple) else str(kind.__name__)


def take_seconds(command: Dict[str, Any], name: str, default: float, most: float = 3600.0) -> float:
    """A duration in seconds, above 0 and at most `most`."""
    value = float(take(command, name, (int, float), default))
    if not 0 < value <= most:
        raise Refused("%s: %r must be above 0 and at most %g s, not %r" % (command.get("op"), name, most, value))
    return value


def take_port(command: Dict[str, Any], name: str, default: Any = ...) -> Any:
    """A port number, or the default."""
    value = take(command, name, int, default)
    if value is not None and not 0 < value < 65536:
        raise Refused("%s: %r must be a port from 1 to 65535, not %r" % (command.get("op"), name, value))
    return value


def take_bytes(command: Dict[str, Any], name: str) -> bytes:
    """A byte string sent as base64; empty when it is missing."""
    try:
        return base64.b64decode(take(command, name, str, ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused("%s: %r is not base64: %s" % (command.get("op"), name, error)) from error


def family_of(address: Any) -> int:
    """4 or 6. Refused when it isn't an address."""
    if isinstance(address, str):
        for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
            try:
                socket.inet_pton(family, address)
                return version
            except (OSError, ValueError):
                continue
    raise Refused("%r is not an IPv4 or IPv6 address" % (address,))


# -- processes: read from /proc, never guessed --------------------------------------------------------------------


class Stat(object):
    """One line of /proc/PID/stat (or of one thread). `started` tells a process from a later one with its number."""

    __slots__ = ("pid", "comm", "state", "parent", "started")

    def __init__(self, text: bytes) -> None:
        head, _, tail = text.rpartition(b")")
        number, _, comm = head.partition(b"(")
        words = tail.split()
        self.pid = int(number)
        self.comm = comm.decode("utf-8", "replace")
        self.state = words[0].decode()
        self.parent = int(words[1])
        self.started = int(words[19])


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(65536)


def stat_of(pid: int) -> Optional[Stat]:
    """The process, or None when there is none of that number."""
    try:
        return Stat(_read("/proc/%d/stat" % pid))
    except (FileNotFoundError, ProcessLookupError):
        return None


def all_processes() -> Dict[int, Stat]:
    """Every process of this pid namespace."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = stat_of(int(name))
            if stat is not None:
                found[stat.pid] = stat
    return found


def thread_ids(pid: int) -> List[int]:
    """The threads of a process; none when it is gone."""
    try:
        return sorted(int(name) for name in os.listdir("/proc/%d/task" % pid))
    except (FileNotFoundError, ProcessLookupError):
        return []


def thread_states(pid: int) -> Dict[int, str]:
    """Thread -> state letter, of those that live (not Z, not X)."""
    states = {}
    for tid in thread_ids(pid):
        try:
            state = Stat(_read("/proc/%d/task/%d/stat" % (pid, tid))).state
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            states[tid] = state
    return states


def is_same(pid: int, started: int) -> bool:
    """Whether this process still lives, and is not a later one that was given its number."""
    stat = stat_of(pid)
    return stat is not None and stat.started == started and lives(stat)


def lives(stat: Stat) -> bool:
    """Whether anything of a process still runs: the first thread may have ended while others have not."""
    return stat.state not in "ZX" or bool(thread_states(stat.pid))


def descendants(roots: Iterable[int], everyone: Dict[int, Stat]) -> Set[int]:
    """The roots that live, and all their children and children's children."""
    children = {}  # type: Dict[int, List[int]]
    for stat in everyone.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found = set()  # type: Set[int]
    todo = [root for root in roots if root in everyone]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


def namespace(pid: Any, kind: str) -> Optional[str]:
    """The identity of a process' namespace, or None when it has none any more, because it is ending or gone."""
    try:
        return os.readlink("/proc/%s/ns/%s" % (pid, kind))
    except PermissionError as error:
        raise Refused(
            "the namespaces of process %s can't be read (the node needs the capability SYS_PTRACE)" % pid
        ) from error
    except OSError:
        return None


class Selection(object):
    """Which processes a command means: the service of this node, or given ones, each with all its descendants.

    The service's processes are told from the node's own by their mount namespace, because on a pod the service runs in
    a container of its own (rule "mount"). Where it doesn't (a plain host, rule "rest"), they are all that is not ours;
    that rule is refused outside a pid namespace made for the node, where it would mean the whole machine.
    """

    def __init__(self, agent: "Agent", command: Dict[str, Any]) -> None:
        self._agent = agent
        pids = take(command, "pids", list, None)
        self.service = pids is None
        self.pids = []  # type: List[int]
        for pid in pids or []:
            if not isinstance(pid, int) or isinstance(pid, bool) or pid < 2:
                raise Refused("%s: %r is not a process to touch" % (command.get("op"), pid))
            self.pids.append(pid)
        if pids is not None and not pids:
            raise Refused("%s: 'pids' is empty" % command.get("op"))

    def now(self) -> Dict[int, Stat]:
        """The processes meant, as of this instant; zombies left out."""
        everyone = all_processes()
        ours = self._agent.own_processes(everyone)
        if self.service:
            chosen = {pid for pid in everyone if self._agent.role(pid, everyone, ours) == "service"}
        else:
            chosen = descendants(self.pids, everyone) - ours
        return {pid: everyone[pid] for pid in chosen if lives(everyone[pid])}

    def some(self) -> Dict[int, Stat]:
        """Like `now`, Refused when there is none."""
        found = self.now()
        if not found:
            what = "no process of the service runs on this node" if self.service else "no process %s" % self.pids
            raise Refused(what + " (was it killed, or not started yet?)")
        return found


# -- the journal --------------------------------------------------------------------------------------------------


class Journal(object):
    """What is (about to be) in force on this node: id -> what to undo, on disk before it is applied.

    It lives where the kernel state that it describes lives: on a tmpfs, gone with the machine, and in a folder named
    after the node's own pid and network namespaces, so that two nodes that share a file system don't meet. It is
    fsynced, which on a tmpfs costs nothing.
    """

    ROOTS = ("/run", "/dev/shm", "/var/lib", "/tmp")

    def __init__(self, root: Optional[str]) -> None:
        self.folder = os.path.join(root or self._root(), "fencepost", self._name())
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self.path = os.path.join(self.folder, "journal")
        self.held = {}  # type: Dict[str, Dict[str, Any]]

    @classmethod
    def _root(cls) -> str:
        memory = set()
        for line in _read_all("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
            left, _, right = line.partition(" - ")
            if right.split(" ", 1)[0] == "tmpfs":
                memory.add(left.split(" ")[4])
        usable = [root for root in cls.ROOTS if os.path.isdir(root) and os.access(root, os.W_OK)]
        if not usable:
            raise Refused("the journal can't be written: none of %s is writable" % ", ".join(cls.ROOTS))
        return next((root for root in usable if root in memory), usable[0])

    @staticmethod
    def _name() -> str:
        return "-".join(re.sub(r"\D", "", namespace("self", kind) or "") or "0" for kind in ("pid", "net"))

    @staticmethod
    def _boot() -> str:
        return _read("/proc/sys/kernel/random/boot_id").decode().strip()

    def load(self) -> Dict[str, Dict[str, Any]]:
        """What an agent before this one left; nothing when it was of an earlier boot, whose faults went with it."""
        try:
            data = json.loads(_read_all(self.path).decode("utf-8"))
            held = data["held"] if data["boot"] == self._boot() else {}
            return {str(key): dict(entry) for key, entry in held.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Written by rename, so that this is no half-written file of ours. Chains can be found without a journal.
            log("the journal %s can't be read (%s); it is put aside" % (self.path, error))
            os.replace(self.path, self.path + ".unreadable")
            return {"cut:?": {}}

    def put(self, key: str, entry: Dict[str, Any]) -> None:
        """Note an intent. On disk when it returns."""
        self.held[key] = entry
        self._write()

    def drop(self, key: str) -> None:
        """Forget what was undone."""
        if self.held.pop(key, None) is not None:
            self._write()

    def _write(self) -> None:
        fresh = self.path + ".new"
        data = json.dumps({"boot": self._boot(), "held": self.held}).encode()
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(fresh, self.path)
        folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read_all(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# -- links: iptables and ip6tables, in chains of our own ----------------------------------------------------------


class Firewall(object):
    """Cuts links. The two chains of ours are rewritten as a whole in one transaction; no other chain is flushed.

    Docker's DNS and what a host's owner has set up live in other chains, which keep working. The default is to drop
    what *arrives*: a dropped outgoing packet makes sendto() fail with EPERM, which no broken cable does, and which
    programs take for something else (memberlist, in Consul, then does not suspect the peer).
    """

    def __init__(self) -> None:
        self._backend = None  # type: Optional[str]
        self.cuts = {}  # type: Dict[str, List[Tuple[int, str, str]]]
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
        results = {}  # type: Dict[int, Tuple[int, str, str]]

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
                if b"filter" in _read("/proc/self/net/" + name):
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


CHAINS_RE = re.compile(r"\bFENCEPOST-(IN|OUT)\b")


def _tool_environment() -> Dict[str, str]:
    return {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin", "LC_ALL": "C"}


def rules_from(command: Dict[str, Any]) -> List[Tuple[int, str, str]]:
    """`rules` of a cut: [{"addresses": […], "direction": "in"|"out"|"both", "local_port"?, "remote_port"?}, …]."""
    rules = []  # type: List[Tuple[int, str, str]]
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


# -- freezing and killing -----------------------------------------------------------------------------------------

STOPPED = "Tt"
"""State letters of a thread that does not run: stopped by a signal, or by a tracer."""


def signal_process(pid: int, number: int) -> None:
    """Send a signal; a process that is gone needs none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise Refused("no permission to signal process %d (the node needs the capability KILL)" % pid) from None


def freeze(selection: Selection, note: Callable[[Dict[int, Stat]], None], deadline: float) -> Dict[str, Any]:
    """SIGSTOP all processes of a selection, until every thread of every one of them is stopped.

    A process may fork while the others are being stopped; so the tree is read again until two readings agree. `note`
    is called with processes before they are stopped. Returns the evidence.
    """
    held = {}  # type: Dict[int, Stat]
    looks = 0
    while True:
        found = selection.some() if not held else selection.now()
        fresh = {pid: stat for pid, stat in found.items() if pid not in held}
        if fresh:
            held.update(fresh)
            note(held)
            for pid in sorted(fresh):
                signal_process(pid, signal.SIGSTOP)
        looks += 1
        running = {
            "%d/%d" % (pid, tid): state
            for pid in held
            for tid, state in thread_states(pid).items()
            if state not in STOPPED
        }
        if not fresh and not running:
            break
        if time.monotonic() > deadline:
            raise Refused("not all threads stopped in time; these did not: %s" % _few(running))
        if looks % 20 == 0 and "D" in running.values():
            _release_vfork({int(where.split("/")[0]) for where, state in running.items() if state == "D"}, held)
        if running:
            time.sleep(0.0005)
    alive = {pid: stat for pid, stat in held.items() if is_same(pid, stat.started)}
    if not alive:
        raise Refused("every process of the selection ended while it was being stopped")
    return {
        "processes": [{"pid": p, "comm": s.comm, "threads": len(thread_states(p))} for p, s in sorted(alive.items())],
        "looks": looks,
    }


def _release_vfork(parents: Set[int], held: Dict[int, Stat]) -> None:
    """Let the children of these processes run for a moment, and stop them again.

    A thread that called vfork() waits, deaf to all signals (state D), until its child runs another program or ends.
    When the child was stopped before that, the parent never stops. Shells, Go and the JVM start programs so.
    """
    children = [stat.pid for stat in all_processes().values() if stat.parent in parents and stat.pid in held]
    for pid in children:
        signal_process(pid, signal.SIGCONT)
    end = time.monotonic() + 0.05
    while time.monotonic() < end and any("D" in thread_states(pid).values() for pid in parents):
        time.sleep(0.0002)
    for pid in children:
        signal_process(pid, signal.SIGSTOP)


def thaw(held: Sequence[Sequence[int]], deadline: float) -> Dict[str, Any]:
    """SIGCONT to processes ([pid, started]) and their stopped descendants; returns once none of them is stopped."""
    mine = {int(pid): int(started) for pid, started in held}
    alive = {pid for pid, started in mine.items() if is_same(pid, started)}
    before = {pid: thread_states(pid) for pid in alive}
    escaped = {str(p): t for p, t in before.items() if any(state not in STOPPED for state in t.values())}
    for pid in sorted(alive):
        signal_process(pid, signal.SIGCONT)
    while True:
        everyone = all_processes()
        tree = descendants([pid for pid in alive if is_same(pid, mine[pid])], everyone)
        still = {}  # type: Dict[str, str]
        for pid in tree:
            states = thread_states(pid)
            if any(state == "T" for state in states.values()):
                still[str(pid)] = "".join(sorted(set(states.values())))
                signal_process(pid, signal.SIGCONT)
        if not still:
            break
        if time.monotonic() > deadline:
            raise Refused("these processes are still stopped: %s" % _few(still))
        time.sleep(0.0005)
    return {
        "processes": sorted(alive),
        "gone": sorted(set(mine) - alive),
        "was_stopped_throughout": not escaped,
        "states": "".join(sorted({state for pid in alive for state in thread_states(pid).values()})),
    }


def kill(selection: Selection, deadline: float) -> Dict[str, Any]:
    """SIGKILL all processes of a selection; returns once none of them is there."""
    killed = {}  # type: Dict[int, Stat]
    found = selection.some()
    while found:
        for pid, stat in sorted(found.items()):
            killed[pid] = stat
            signal_process(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise Refused("these processes are still there after SIGKILL: %s" % _few(dict.fromkeys(found, "SIGKILL")))
        time.sleep(0.0005)
        found = selection.now()
        found.update({pid: stat for pid, stat in killed.items() if is_same(pid, stat.started)})
    return {"processes": [{"pid": pid, "comm": s.comm, "started": s.started} for pid, s in sorted(killed.items())]}


def _few(items: Dict[Any, Any]) -> str:
    shown = ", ".join("%s (%s)" % pair for pair in sorted(items.items(), key=str)[:8])
    return shown + (" and %d more" % (len(items) - 8) if len(items) > 8 else "")


# -- looking: http, tcp, probes -----------------------------------------------------------------------------------


def http_request(command: Dict[str, Any]) -> Dict[str, Any]:
    """One request to this node's own server. `timeout` bounds the whole of it."""
    import http.client  # 20 ms to import, and only servers' nodes need it

    timeout = take_seconds(command, "timeout", 1.0)
    end = time.monotonic() + timeout
    host, port = take(command, "host", str, "127.0.0.1"), take_port(command, "port")
    body = take_bytes(command, "body")
    headers = take(command, "headers", dict, {})
    where = "%s:%d" % (host, port)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.connect()
        sock = connection.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.request(take(command, "method", str), take(command, "path", str), body or None, headers)
        sock.settimeout(max(0.001, end - time.monotonic()))
        reply = connection.getresponse()
        parts = []
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise socket.timeout("timed out")
            sock.settimeout(left)
            part = reply.read1(65536) if hasattr(reply, "read1") else reply.read()
            if not part:
                break
            parts.append(part)
        return {
            "status": reply.status,
            "body": base64.b64encode(b"".join(parts)).decode(),
            "date": reply.getheader("Date"),
        }
    except socket.timeout:
        raise Refused("no answer from %s within %g s" % (where, timeout)) from None
    except (OSError, http.client.HTTPException, ValueError, UnicodeError) as error:
        raise Refused("no answer from %s: %s" % (where, _why(error))) from error
    finally:
        connection.close()


def tcp_request(command: Dict[str, Any]) -> Dict[str, Any]:
    """Send bytes to this node's own server, read until it closes or `read_bytes` came; 1 = the first chunk."""
    timeout = take_seconds(command, "timeout", 1.0)
    end = time.monotonic() + timeout
    host, port = take(command, "host", str, "127.0.0.1"), take_port(command, "port")
    want = take(command, "read_bytes", int, 65536)
    if want < 1:
        raise Refused("tcp: 'read_bytes' must be at least 1, not %d" % want)
    payload = take_bytes(command, "payload")
    where = "%s:%d" % (host, port)
    got = b""
    try:
        with socket.create_connection((host, port), timeout=timeout) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(payload)
            while len(got) < want:
                left = end - time.monotonic()
                if left <= 0:
                    raise socket.timeout("timed out")
                sock.settimeout(left)
                part = sock.recv(65536)
                if not part:
                    break
                got += part
    except socket.timeout:
        raise Refused("no full answer from %s within %g s (%d bytes came)" % (where, timeout, len(got))) from None
    except OSError as error:
        raise Refused("no answer from %s: %s" % (where, _why(error))) from error
    return {"data": base64.b64encode(got).decode()}


def _why(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


class Listeners(object):
    """What a probe connects to: one TCP listener and one UDP socket for both families, on ports the kernel chose.

    A probe so depends on no port of the system under test, and works while that is frozen. UDP tells the two
    directions of a link apart: a datagram that was heard came through, whatever happens to an answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard = {}  # type: Dict[str, Dict[str, Any]]
        self._changed = threading.Condition()
        self._ports = None  # type: Optional[Dict[str, int]]

    def open(self) -> Dict[str, int]:
        """The ports, {"tcp": …, "udp": …}; opened at the first call and kept until the agent leaves."""
        with self._lock:
            if self._ports is None:
                tcp, udp = self._socket(socket.SOCK_STREAM), self._socket(socket.SOCK_DGRAM)
                tcp.listen(64)
                self._ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
                threading.Thread(target=self._accept, args=(tcp,), daemon=True).start()
                threading.Thread(target=self._receive, args=(udp,), daemon=True).start()
            return self._ports

    @staticmethod
    def _socket(kind: int) -> socket.socket:
        try:
            sock = socket.socket(socket.AF_INET6, kind)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("::", 0))
        except OSError:  # a node without IPv6
            sock = socket.socket(socket.AF_INET, kind)
            sock.bind(("0.0.0.0", 0))
        return sock

    @staticmethod
    def _accept(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
                connection.close()
            except OSError as error:
                log("probe listener: %s" % error)
                if error.errno not in (errno.ECONNABORTED, errno.EMFILE, errno.EINTR):
                    return

    def _receive(self, sock: socket.socket) -> None:
        while True:
            data, sender = sock.recvfrom(256)
            with self._changed:
                if len(self._heard) > 10000:
                    self._heard.clear()
                self._heard[data.decode("ascii", "replace")] = {"from": sender[0], "boottime_ns": now_ns()}
                self._changed.notify_all()

    def heard(self, words: Sequence[str], timeout: float) -> List[str]:
        """Which of these words arrived by UDP; waits until all have, at most for the timeout."""
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                got = [word for word in words if word in self._heard]
                left = end - time.monotonic()
                if len(got) == len(words) or left <= 0:
                    return got
                self._changed.wait(left)


def probe(targets: Sequence[Any], timeout: float) -> List[str]:
    """Try to connect to each [address, port] at once. A word for each, in order.

    "connected", or "refused" (an answer came, nobody listens): the link works, both ways. "timeout": nothing came
    back. Else the kernel's own word, such as "No route to host".
    """
    results = ["timeout"] * len(targets)
    selector = selectors.DefaultSelector()
    for index, target in enumerate(targets):
        if not isinstance(target, list) or len(target) != 2:
            raise Refused("probe: a target must be [address, port], not %r" % (target,))
        address, port = target
        family = socket.AF_INET if family_of(address) == 4 else socket.AF_INET6
        if not isinstance(port, int) or not 0 < port < 65536:
            raise Refused("probe: %r is not a port" % (port,))
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        status = sock.connect_ex((address, port))
        if status == errno.EINPROGRESS:
            selector.register(sock, selectors.EVENT_WRITE, index)
        else:
            results[index] = _probe_word(status)
            sock.close()
    end = time.monotonic() + timeout
    while selector.get_map():
        left = end - time.monotonic()
        if left <= 0:
            break
        for key, _ in selector.select(left):
            sock = key.fileobj  # type: ignore[assignment]
            results[key.data] = _probe_word(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            selector.unregister(sock)
            sock.close()
    for key in list(selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    selector.close()
    return results


def _probe_word(status: int) -> str:
    return {0: "connected", errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "timeout"}.get(status, os.strerror(status))


def shout(targets: Sequence[Any]) -> List[Optional[str]]:
    """Send a UDP datagram to each [address, port, word], three times; for each None, or why it could not be sent."""
    results = []  # type: List[Optional[str]]
    for target in targets:
        if not isinstance(target, list) or len(target) != 3 or not isinstance(target[2], str):
            raise Refused("shout: a target must be [address, port, word], not %r" % (target,))
        family = socket.AF_INET if family_of(target[0]) == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            try:
                for _ in range(3):
                    sock.sendto(target[2].encode("ascii", "replace"), (target[0], int(target[1])))
                results.append(None)
            except OSError as error:
                results.append(_why(error))
    return results


# -- clocks: a process' own view of time, moved through its vDSO --------------------------------------------------
#
# Programs read the clock through the vDSO, code that the kernel maps into every process. Writing to it makes a private
# copy of its pages, so that one process alone can be given another time; the machine's clock is never touched. The
# patch: a routine in the unused end of the mapping, that makes the real system call and adds an offset, and a jump to
# it at the entry of each function. All threads are stopped by ptrace meanwhile, not by SIGSTOP: it leaves no trace in
# the process' signal state, shows every register, and lets go by itself should this agent be killed.

CLOCKS = {
    "realtime": 0,
    "monotonic": 1,
    "monotonic_raw": 4,
    "realtime_coarse": 5,
    "monotonic_coarse": 6,
    "boottime": 7,
    "realtime_alarm": 8,
    "tai": 11,
}
MOVED = {
    "realtime": ("realtime", "realtime_coarse", "realtime_alarm", "tai"),
    "monotonic": ("monotonic", "monotonic_raw", "monotonic_coarse"),
}
READ_BACK = ("realtime", "realtime_coarse", "monotonic", "monotonic_coarse", "monotonic_raw", "boottime")
VDSO_FUNCTIONS = ("__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time")
MAGIC = b"FENCEPST"
"""Marks a routine of ours; eight bytes that stand for the fault follow."""
COARSE_TICK_NS = 20 * 1000 * 1000
"""A coarse clock lags by up to one kernel tick (10 ms at 100 Hz); twice that."""
READ_TRIES, READ_NARROW_NS, READ_WIDEST_SECONDS = 8, 2 * 10**6, 0.5
READ_PATIENCE_SECONDS, READ_USEFUL_NS = 0.25, 10**8
"""How long a process is kept stopped at most for the sake of narrower readings: that is a fault of its own, too."""

PTRACE_POKEDATA, PTRACE_CONT, PTRACE_DETACH = 5, 7, 17
PTRACE_GETREGSET, PTRACE_SETREGSET, PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
PTRACE_GETSIGMASK, PTRACE_SETSIGMASK = 0x420A, 0x420B
NT_PRSTATUS = 1
PTRACE_EVENT_STOP = 128
WALL = 0x40000000
X86_REGISTERS = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax "
    "rip cs eflags rsp ss fs_base gs_base ds es fs gs"
).split()


class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = [
    ctypes.c_long,
    ctypes.POINTER(IoVec),
    ctypes.c_ulong,
    ctypes.POINTER(IoVec),
    ctypes.c_ulong,
    ctypes.c_ulong,
]


def ptrace(request: int, tid: int, address: Optional[int] = None, data: Any = None) -> None:
    """One ptrace request. Raises OSError."""
    ctypes.set_errno(0)
    if _libc.ptrace(request, tid, address, data) == -1 and ctypes.get_errno():
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def read_memory(pid: int, address: int, length: int) -> bytes:
    """Bytes of another process. Raises OSError. Needs no permission on /proc/PID/mem, which belongs to its user."""
    buffer = ctypes.create_string_buffer(length)
    local = IoVec(ctypes.cast(buffer, ctypes.c_void_p), length)
    remote = IoVec(address, length)
    got = _libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    if got < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return buffer.raw[:got]


class Image(object):
    """The vDSO of one process: where it lies, where its functions are, and how much room there is after its code."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stack = None  # type: Optional[int]
        span = None
        for line in _read_all("/proc/%d/maps" % pid).decode("utf-8", "replace").splitlines():
            words = line.split()
            if words[-1] in ("[vdso]", "[stack]"):
                low, high = (int(word, 16) for word in words[0].split("-"))
                if words[-1] == "[vdso]":
                    span = (low, high)
                else:
                    self.stack = low
        if span is None:
            raise Refused("process %d has no vDSO: its clock can't be moved" % pid)
        self.base = span[0]
        self.bytes = read_memory(pid, span[0], span[1] - span[0])
        if len(self.bytes) != span[1] - span[0] or self.bytes[:5] != b"\x7fELF\x02":
            raise Refused("process %d has no 64-bit vDSO: its clock can't be moved" % pid)
        self.machine = struct.unpack_from("<H", self.bytes, 18)[0]
        self.functions = self._functions()
        self.free = self._free()

    def _functions(self) -> Dict[str, Tuple[int, int]]:
        """Name -> (address, size), from the dynamic symbol table."""
        header_offset = struct.unpack_from("<Q", self.bytes, 32)[0]
        size, count = struct.unpack_from("<HH", self.bytes, 54)
        load, dynamic = None, None
        for index in range(count):
            kind, _, offset, address = struct.unpack_from("<IIQQ", self.bytes, header_offset + index * size)
            if kind == 1 and load is None:
                load = address - offset
            elif kind == 2:
                dynamic = offset
        if load is None or dynamic is None:
            raise Refused("the vDSO of process %d has no dynamic section" % self.pid)
        tags = {}  # type: Dict[int, int]
        while True:
            tag, value = struct.unpack_from("<QQ", self.bytes, dynamic)
            if tag == 0:
                break
            tags[tag] = value
            dynamic += 16
        symbols, strings = tags[6] - load, tags[5] - load
        if 4 in tags:  # DT_HASH tells how many symbols there are
            total = struct.unpack_from("<I", self.bytes, tags[4] - load + 4)[0]
        else:  # every linker puts the strings right after the symbols
            total = (strings - symbols) // 24
        found = {}
        for index in range(total):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", self.bytes, symbols + 24 * index)
            if section and info & 15 == 2:
                end = self.bytes.index(b"\0", strings + name)
                found[self.bytes[strings + name : end].decode()] = (self.base + value - load, length)
        return found

    def _free(self) -> Tuple[int, int]:
        """(address, length) of the zero bytes after the end of everything that the image consists of."""
        used = len(self.bytes.rstrip(b"\0"))
        offset, size, count = struct.unpack_from("<Q", self.bytes, 32)[0], *struct.unpack_from("<HH", self.bytes, 54)
        for index in range(count):
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", self.bytes, offset + index * size)
            if kind == 1:
                used = max(used, start + length)
        sections, (each, many) = struct.unpack_from("<Q", self.bytes, 40)[0], struct.unpack_from("<HH", self.bytes, 58)
        if sections:
            used = max(used, sections + each * many)
        start = (used + 63) // 64 * 64
        return self.base + start, max(0, len(self.bytes) - start)

    @property
    def code(self) -> bytes:
        """The image without the zeros at its end."""
        return self.bytes.rstrip(b"\0")


class X86(object):
    """The routine for x86-64."""

    MACHINE = 62
    JUMP = 5
    LANDING = 48
    """Offset of the breakpoint that a call made by us returns to."""
    VARIABLES = 16
    """Offset of the four variables: seconds, nanoseconds, microseconds, mask of the clocks that are moved."""

    @staticmethod
    def variables(offset_ns: int, mask: int) -> bytes:
        """The four variables for an offset; the fraction is never negative."""
        seconds, fraction = divmod(offset_ns, 10**9)
        return struct.pack("<qqqQ", seconds, fraction, fraction // 1000, mask)

    @classmethod
    def routine(cls, tag: bytes, offset_ns: int, mask: int) -> Tuple[bytes, Dict[str, int]]:
        """The bytes to place (64-byte aligned), and the offset in them of the stand-in for each function.

        Uses what a system call clobbers anyway (rax, rcx, r11), and at most 40 bytes of stack.
        """
        out = bytearray(MAGIC + tag + cls.variables(offset_ns, mask) + b"\xcc" + b"\x90" * 15)
        seconds, fraction, micros, masks = (cls.VARIABLES + 8 * index for index in range(4))

        def near(opcode: bytes, target: int, after: bytes = b"") -> None:
            """An instruction with an address relative to its own end."""
            end = len(out) + len(opcode) + 4 + len(after)
            out.extend(opcode + struct.pack("<i", target - end) + after)

        def add_offset(pointer: bytes, low: int, per_second: int) -> bytes:
            """Add seconds to [pointer], the fraction to [pointer + 8], and carry."""
            add, load_low, inc, store = pointer[0:1], pointer[1:2], pointer[2:3], pointer[3:4]
            near(b"\x48\x8b\x0d", seconds)  # mov rcx, [seconds]
            out.extend(b"\x48\x01" + add)  # add [pointer], rcx
            near(b"\x48\x8b\x0d", low)  # mov rcx, [fraction]
            out.extend(b"\x48\x03" + load_low + b"\x08")  # add rcx, [pointer + 8]
            out.extend(b"\x48\x81\xf9" + struct.pack("<i", per_second))  # cmp rcx, one second
            out.extend(b"\x7c\x0a")  # jl over the carry
            out.extend(b"\x48\x81\xe9" + struct.pack("<i", per_second))  # sub rcx, one second
            out.extend(b"\x48\xff" + inc)  # inc qword [pointer]
            out.extend(b"\x48\x89" + store + b"\x08")  # mov [pointer + 8], rcx
            return b""

        def short(opcode: bytes) -> int:
            """A short jump forward, whose distance `here` fills in."""
            out.extend(opcode + b"\0")
            return len(out)

        def here(*jumps: int) -> None:
            for jump in jumps:
                out[jump - 1] = len(out) - jump

        places = {}
        places["__vdso_clock_gettime"] = get = len(out)
        out.extend(b"\xb8\xe4\0\0\0\x0f\x05\x85\xc0")  # mov eax, 228; syscall; test eax, eax
        failed = short(b"\x75")
        out.extend(b"\x83\xff\x3f")  # cmp edi, 63: also the negative ids of processes' cpu clocks
        other = short(b"\x77")
        near(b"\x48\x8b\x0d", masks)  # mov rcx, [mask]
        out.extend(b"\x48\x0f\xa3\xf9")  # bt rcx, rdi
        unmoved = short(b"\x73")
        add_offset(b"\x0e\x4e\x06\x4e", fraction, 10**9)
        here(failed, other, unmoved)
        out.extend(b"\xc3")

        places["__vdso_gettimeofday"] = len(out)
        out.extend(b"\xb8\x60\0\0\0\x0f\x05\x85\xc0")  # mov eax, 96; syscall; test eax, eax
        failed = short(b"\x75")
        out.extend(b"\x48\x85\xff")  # test rdi, rdi
        other = short(b"\x74")
        near(b"\xf6\x05", masks, b"\x01")  # test byte [mask], 1
        unmoved = short(b"\x74")
        add_offset(b"\x0f\x4f\x07\x4f", micros, 10**6)
        here(failed, other, unmoved)
        out.extend(b"\xc3")

        places["__vdso_time"] = len(out)
        # push rdi; sub rsp, 16; mov edi, CLOCK_REALTIME_COARSE (what time() reads); mov rsi, rsp
        out.extend(b"\x57\x48\x83\xec\x10\xbf\x05\0\0\0\x48\x89\xe6")
        near(b"\xe8", get)
        # mov rax, [rsp]; add rsp, 16; pop rdi; test rdi, rdi
        out.extend(b"\x48\x8b\x04\x24\x48\x83\xc4\x10\x5f\x48\x85\xff")
        nowhere = short(b"\x74")
        out.extend(b"\x48\x89\x07")  # mov [rdi], rax
        here(nowhere)
        out.extend(b"\xc3")
        return bytes(out), places

    @classmethod
    def jump(cls, source: int, target: int) -> bytes:
        """The bytes of a jump from one address to another."""
        return b"\xe9" + struct.pack("<i", target - source - cls.JUMP)


ARCHITECTURES = {X86.MACHINE: X86}


class Stopped(object):
    """All threads of a process, stopped by ptrace until `release`. Use in one thread, as a context manager."""

    def __init__(self, pid: int, deadline: float) -> None:
        self.pid = pid
        self.threads = {}  # type: Dict[int, int]
        self._deadline = deadline
        try:
            self._stop_all()
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> "Stopped":
        return self

    def __exit__(self, *error: Any) -> None:
        self.release()

    def _stop_all(self) -> None:
        gone = set()  # type: Set[int]
        while True:
            fresh = [tid for tid in thread_ids(self.pid) if tid not in self.threads and tid not in gone]
            if not fresh:
                break
            for tid in fresh:
                try:
                    ptrace(PTRACE_SEIZE, tid)
                    self.threads[tid] = 0
                    ptrace(PTRACE_INTERRUPT, tid)
                except OSError as error:
                    stat = thread_states(self.pid).get(tid)
                    if error.errno == errno.ESRCH or stat is None:
                        gone.add(tid)
                        self.threads.pop(tid, None)
                        continue
                    raise Refused(
                        "thread %d of process %d can't be stopped: %s (is it being traced, or does the node lack the "
                        "capability SYS_PTRACE?)" % (tid, self.pid, error.strerror)
                    ) from error
            for tid in fresh:
                if tid in self.threads:
                    signal_number = self._wait(tid)
                    if signal_number is None:
                        gone.add(tid)
                        del self.threads[tid]
                    else:
                        self.threads[tid] = signal_number
        if not self.threads:
            raise Refused("process %d has ended" % self.pid)

    def _wait(self, tid: int) -> Optional[int]:
        """Wait until a thread stops: 0, the signal that it was about to take, or None when it ended."""
        spins = 0
        while True:
            try:
                got, status = os.waitpid(tid, WALL | os.WNOHANG)
            except ChildProcessError:
                return None
            if got == tid:
                if not os.WIFSTOPPED(status):
                    return None
                return 0 if status >> 16 == PTRACE_EVENT_STOP else os.WSTOPSIG(status)
            spins += 1
            if time.monotonic() > self._deadline:
                raise Refused("thread %d of process %d did not stop in time" % (tid, self.pid))
            if spins > 20:
                time.sleep(0.0001)

    def release(self) -> None:
        """Let all threads go on, each with the signal that it was about to take."""
        for tid, signal_number in self.threads.items():
            try:
                ptrace(PTRACE_DETACH, tid, None, signal_number)
            except OSError as error:
                if error.errno != errno.ESRCH:
                    log("thread %d of process %d could not be let go: %s" % (tid, self.pid, error))
        self.threads.clear()

    def registers(self, tid: int) -> Dict[str, int]:
        """The registers of a thread, by name."""
        buffer = ctypes.create_string_buffer(8 * len(X86_REGISTERS))
        vector = IoVec(ctypes.cast(buffer, ctypes.c_void_p), len(buffer))
        ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, ctypes.byref(vector))
        return dict(zip(X86_REGISTERS, struct.unpack("<%dQ" % len(X86_REGISTERS), buffer.raw)))

    def set_registers(self, tid: int, values: Dict[str, int]) -> None:
        """Set all registers of a thread."""
        raw = struct.pack("<%dQ" % len(X86_REGISTERS), *(values[name] & (2**64 - 1) for name in X86_REGISTERS))
        buffer = ctypes.create_string_buffer(raw, len(raw))
        vector = IoVec(ctypes.cast(buffer, ctypes.c_void_p), len(raw))
        ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, ctypes.byref(vector))

    def write(self, address: int, data: bytes) -> None:
        """Write bytes, in aligned words of eight, so that no word is ever half written. Read-only pages too."""
        low, high = address // 8 * 8, (address + len(data) + 7) // 8 * 8
        words = bytearray(read_memory(self.pid, low, high - low))
        words[address - low : address - low + len(data)] = data
        tid = next(iter(self.threads))
        for offset in range(0, len(words), 8):
            ptrace(PTRACE_POKEDATA, tid, low + offset, struct.unpack_from("<Q", words, offset)[0])

    def uses(self, low: int, high: int) -> bool:
        """Whether a thread is in [low, high), or may return there: its program counter, or a word on its stack.

        The stack matters for a thread that is in a signal handler: where it was interrupted stands in its frame.
        """
        pattern = (low >> 16).to_bytes(6, "little")
        for tid in self.threads:
            values = self.registers(tid)
            if low <= values["rip"] < high:
                return True
            stack = self._stack(values["rsp"])
            at = stack.find(pattern)
            while at >= 0:
                if at >= 2 and low <= int.from_bytes(stack[at - 2 : at + 6], "little") < high:
                    return True
                at = stack.find(pattern, at + 1)
        return False

    def _stack(self, top: int) -> bytes:
        for length in (16384, 4096, 4096 - top % 4096):
            try:
                return read_memory(self.pid, top, length)
            except OSError:
                continue
        return b""

    def call(self, function: int, first: int, second: int, landing: int, stack: int) -> int:
        """Let one thread call a function of the process and come back as if nothing had happened; returns rax.

        `landing` is the address of a breakpoint, `stack` that of some memory that the caller saves and restores.
        """
        # A thread inside a system call is preferred: it can't be in a restartable sequence, which would be cut short.
        free = [tid for tid, signal_number in self.threads.items() if signal_number == 0]
        if not free:
            raise Refused("every thread of process %d is about to take a signal; try again" % self.pid)
        saved = {tid: self.registers(tid) for tid in free[:64]}
        tid = next((t for t in saved if saved[t]["orig_rax"] < 2**63), free[0])
        before = saved[tid]
        mask = ctypes.c_uint64()
        ptrace(PTRACE_GETSIGMASK, tid, 8, ctypes.byref(mask))
        # All signals wait until the thread is itself again, save that of the breakpoint.
        block = ctypes.c_uint64(~(1 << (signal.SIGTRAP - 1)) & (2**64 - 1))
        ptrace(PTRACE_SETSIGMASK, tid, 8, ctypes.byref(block))
        try:
            # orig_rax -1: the kernel must not take this for a system call to be restarted
            self.set_registers(
                tid,
                dict(
                    before,
                    rip=function,
                    rdi=first,
                    rsi=second,
                    rsp=stack,
                    rax=0,
                    orig_rax=-1,
                    eflags=before["eflags"] & ~0x500,
                ),
            )
            for _ in range(4):
                ptrace(PTRACE_CONT, tid, None, None)
                stopped_by = self._wait(tid)
                if stopped_by != 0:
                    break  # else only the stop of a frozen process, which a tracer is told once more
            if stopped_by is None:
                del self.threads[tid]
                raise Refused("process %d ended while its clock was read" % self.pid)
            after = self.registers(tid)
            if stopped_by != signal.SIGTRAP or after["rip"] != landing + 1:
                raise Refused(
                    "the call into process %d did not come back: signal %s at %#x"
                    % (self.pid, stopped_by, after["rip"])
                )
            return after["rax"]
        finally:
            if tid in self.threads:
                self.set_registers(tid, before)
                ptrace(PTRACE_SETSIGMASK, tid, 8, ctypes.byref(mask))


def read_clocks(stopped: Stopped, image: Image, landing: int) -> Dict[str, Dict[str, int]]:
    """What the process itself would read now, by its own code path, next to what this agent reads.

    Source -> {"value", "low", "high"} in ns: the process' value, and the agent's clock right before and after.
    """
    if image.stack is None:
        raise Refused("process %d has no main stack" % image.pid)
    scratch, length = image.stack, 2048
    saved = read_memory(image.pid, scratch, length)
    stack, buffer = scratch + 1024 + 8, scratch + 1536
    found = {}  # type: Dict[str, Dict[str, int]]
    patience = time.monotonic() + READ_PATIENCE_SECONDS
    try:
        stopped.write(stack, struct.pack("<Q", landing))
        for name in READ_BACK:

            def value(name: str = name) -> Optional[int]:
                entry = image.functions["__vdso_clock_gettime"][0]
                if stopped.call(entry, CLOCKS[name], buffer, landing, stack) != 0:
                    return None
                seconds, nanos = struct.unpack("<qq", read_memory(image.pid, buffer, 16))
                return int(seconds * 10**9 + nanos)

            _keep(found, name, CLOCKS[name], value, patience)
        if "__vdso_gettimeofday" in image.functions:

            def of_day() -> int:
                stopped.call(image.functions["__vdso_gettimeofday"][0], buffer, 0, landing, stack)
                seconds, micros = struct.unpack("<qq", read_memory(image.pid, buffer, 16))
                return int(seconds * 10**9 + micros * 1000)

            _keep(found, "gettimeofday", 0, of_day, patience)
        if "__vdso_time" in image.functions:

            def seconds_only() -> int:
                return stopped.call(image.functions["__vdso_time"][0], 0, 0, landing, stack) * 10**9

            _keep(found, "time", CLOCKS["realtime_coarse"], seconds_only, patience)
    finally:
        stopped.write(scratch, saved)
    return found


def _keep(
    found: Dict[str, Dict[str, int]], name: str, clock: int, value: Callable[[], Optional[int]], patience: float
) -> None:
    """Read one source between two looks at the agent's own clock, and keep the narrowest of a few such readings.

    On a busy machine the process can wait for a CPU in the middle of one (0.2 s was seen); such a reading says little.
    """
    for _ in range(READ_TRIES):
        low = time.clock_gettime_ns(clock)
        read = value()
        high = time.clock_gettime_ns(clock)
        if read is None:
            return
        best = found.get(name)
        if best is None or high - low < best["high"] - best["low"]:
            found[name] = {"value": read, "low": low, "high": high}
        width = found[name]["high"] - found[name]["low"]
        if width <= READ_NARROW_NS or (time.monotonic() > patience and width <= READ_USEFUL_NS):
            return


def moved_by(before: Dict[str, Dict[str, int]], after: Dict[str, Dict[str, int]]) -> Dict[str, float]:
    """Source -> by how many seconds the process' clock moved against the agent's between two readings."""

    def lead(reading: Dict[str, int]) -> float:
        return (reading["value"] - (reading["low"] + reading["high"]) / 2) / 1e9

    return {name: round(lead(after[name]) - lead(before[name]), 6) for name in after if name in before}


def agrees(before: Dict[str, Dict[str, int]], after: Dict[str, Dict[str, int]], offset_ns: int, mask: int) -> List[str]:
    """Which sources did not move as they should have; none when all did.

    A source may be off by a tick of the coarse clocks and by what its two readings leave open, the halves of the times
    that they took.
    """
    wrong = []
    moved = moved_by(before, after)
    for name, seconds in sorted(moved.items()):
        bit = CLOCKS.get(name, 0)  # gettimeofday and time go with the wall clock
        expected = offset_ns / 1e9 if mask >> bit & 1 else 0.0
        open_seconds = sum(reading[name]["high"] - reading[name]["low"] for reading in (before, after)) / 2e9
        slack = (1.1 if name == "time" else COARSE_TICK_NS / 1e9) + open_seconds
        if open_seconds > READ_WIDEST_SECONDS:
            wrong.append("%s could only be read to within %.3f s" % (name, open_seconds))
        if abs(seconds - expected) > slack:
            wrong.append("%s moved by %.6f s, not %.6f s" % (name, seconds, expected))
    return wrong


class Patch(object):
    """The same few bytes for every process: all on one machine have the same vDSO. JSON in the journal.

    Addresses in it count from the start of the mapping, which lies elsewhere in each process.
    """

    def __init__(self, data: Dict[str, Any]) -> None:
        self.data = data
        self.place = int(data["place"])
        self.routine = bytes.fromhex(data["routine"])
        self.entries = [(int(at), bytes.fromhex(old), bytes.fromhex(new)) for at, old, new in data["entries"]]
        seconds, fraction, _, self.mask = struct.unpack_from("<qqqQ", self.routine, X86.VARIABLES)
        self.offset_ns = seconds * 10**9 + fraction

    @classmethod
    def plan(cls, name: str, offset_ns: int, mask: int) -> "Patch":
        """Decide what to write, by this agent's own vDSO. Refused when it doesn't fit, or on another architecture."""
        image = Image(os.getpid())
        architecture = ARCHITECTURES.get(image.machine)
        if architecture is None:
            raise Refused("clocks can't be moved on this architecture (%s), only on x86_64" % os.uname().machine)
        tag = struct.pack("<II", zlib.crc32(name.encode()), os.getpid() & 0xFFFFFFFF)
        routine, places = architecture.routine(tag, offset_ns, mask)
        place, room = image.free
        if room < len(routine):
            raise Refused("the vDSO has %d bytes to spare, not %d" % (room, len(routine)))
        entries = []
        for function in VDSO_FUNCTIONS:
            if function not in image.functions:
                if function == "__vdso_clock_gettime":
                    raise Refused("the vDSO has no %s" % function)
                continue
            address, size = image.functions[function]
            if size < architecture.JUMP:
                raise Refused("%s is only %d bytes long" % (function, size))
            at = address - image.base
            old = image.bytes[at : at + architecture.JUMP]
            jump = architecture.jump(address, place + places[function])
            entries.append([at, old.hex(), jump.hex()])
        return cls({"place": place - image.base, "routine": routine.hex(), "entries": entries})

    def is_in(self, image: Image) -> bool:
        """Whether this very patch, or a part of it, is in a process."""
        mark = self.routine[: X86.VARIABLES]
        return image.bytes[self.place : self.place + len(mark)] == mark

    def _entries_of(self, image: Image) -> List[bytes]:
        return [image.bytes[at : at + len(old)] for at, old, _ in self.entries]

    def apply(self, pid: int, deadline: float) -> Dict[str, Any]:
        """Write it, with a reading of the clocks before and after; `wrong` lists what did not move as asked."""
        while True:
            with Stopped(pid, deadline) as stopped:
                begin = time.monotonic()
                image = Image(pid)
                free = image.bytes[self.place : self.place + len(self.routine)]
                if self._entries_of(image) != [old for _, old, _ in self.entries] or free.strip(b"\0"):
                    raise Refused(
                        "the vDSO of process %d is not as the kernel made it: is its clock moved already?" % pid
                    )
                base, landing = image.base, image.base + self.place + X86.LANDING
                if not any(stopped.uses(base + at + 1, base + at + len(old)) for at, old, _ in self.entries):
                    try:
                        stopped.write(base + self.place, self.routine)
                        before = read_clocks(stopped, image, landing)
                        for at, _, new in self.entries:
                            stopped.write(base + at, new)
                        after = read_clocks(stopped, image, landing)
                    except Refused:
                        # All threads still stand where they stood, so that it can be taken out as it was put in.
                        for at, old, _ in self.entries:
                            stopped.write(base + at, old)
                        stopped.write(base + self.place, free)
                        raise
                    return {
                        "pid": pid,
                        "threads": len(stopped.threads),
                        "moved": moved_by(before, after),
                        "wrong": agrees(before, after, self.offset_ns, self.mask),
                        "stopped_seconds": round(time.monotonic() - begin, 6),
                    }
            if time.monotonic() > deadline:
                raise Refused("a thread of process %d stays at the entry of a clock function" % pid)
            time.sleep(0.001)

    def read(self, pid: int, deadline: float) -> Dict[str, float]:
        """How far ahead of this agent's clock a process with this patch is, by source."""
        with Stopped(pid, deadline) as stopped:
            image = Image(pid)
            readings = read_clocks(stopped, image, image.base + self.place + X86.LANDING)
        level = {name: dict(r, value=(r["low"] + r["high"]) // 2) for name, r in readings.items()}
        return moved_by(level, readings)

    def undo(self, pid: int, deadline: float) -> Dict[str, Any]:
        """Write back what was there, with a reading before and after."""
        result = {"pid": pid, "routine_left": True}  # type: Dict[str, Any]
        with Stopped(pid, deadline) as stopped:
            image = Image(pid)
            base, landing = image.base, image.base + self.place + X86.LANDING
            now = self._entries_of(image)
            for (at, old, new), found in zip(self.entries, now):
                if found not in (old, new):
                    raise Refused("the vDSO of process %d was changed by somebody else at %#x" % (pid, base + at))
            # Not complete: an agent died while it was at it, and there is nothing that could be read back.
            complete = image.bytes[self.place : self.place + len(self.routine)] == self.routine
            complete = complete and now == [new for _, _, new in self.entries]
            unread = None if complete else "the patch was not complete"
            try:
                before = read_clocks(stopped, image, landing) if complete else {}
            except Refused as error:
                unread = str(error)  # told, but no reason to leave the clock as it is
            for at, old, _ in self.entries:
                stopped.write(base + at, old)
            if unread is not None:
                result["unread"] = unread
            else:
                after = read_clocks(stopped, image, landing)
                result["moved"] = moved_by(before, after)
                result["wrong"] = agrees(before, after, -self.offset_ns, self.mask)
        # The routine goes once no thread is in it, or will return to it. Until then it is out of reach, and harmless.
        low, high = base + self.place, base + self.place + len(self.routine)
        patience = min(deadline, time.monotonic() + 0.5)
        while result["routine_left"] and time.monotonic() < patience:
            with Stopped(pid, deadline) as stopped:
                if not stopped.uses(low, high):
                    stopped.write(low, b"\0" * (high - low))
                    result["routine_left"] = False
            if result["routine_left"]:
                time.sleep(0.002)
        result["restored"] = self._entries_of(Image(pid)) == [old for _, old, _ in self.entries]
        return result


def patched(patch: Patch, agent: "Agent") -> Dict[int, Stat]:
    """The processes that run with a patch: those that were given it, and those that they forked."""
    found = {}
    everyone = all_processes()
    for pid in sorted(set(everyone) - agent.own_processes(everyone) - {1}):
        try:
            if patch.is_in(Image(pid)):
                found[pid] = everyone[pid]
        except (Refused, OSError):
            continue  # ending, or without a 64-bit vDSO
    return found


def clock_apply(patch: Patch, selection: Selection, deadline: float) -> List[Dict[str, Any]]:
    """Patch all processes of a selection, and what appears among them meanwhile. Returns the evidence for each."""
    seen = set()  # type: Set[Tuple[int, int]]
    results = []
    for _ in range(5):  # a service that starts programs all the time is never complete; those keep the true time
        fresh = [stat for stat in selection.now().values() if (stat.pid, stat.started) not in seen]
        if not fresh:
            break
        for stat in sorted(fresh, key=lambda each: each.pid):
            seen.add((stat.pid, stat.started))
            patience = min(deadline, time.monotonic() + 0.25)
            while is_same(stat.pid, stat.started):
                try:
                    if not patch.is_in(Image(stat.pid)):  # else forked by one that was patched
                        results.append(dict(patch.apply(stat.pid, deadline), comm=stat.comm))
                    break
                except (Refused, OSError) as error:
                    # One that is ending, or about to run another program, has no memory for a moment.
                    if time.monotonic() > patience:
                        raise Refused("process %d: %s" % (stat.pid, error)) from error
                    time.sleep(0.002)
    if not results:
        raise Refused("every process of the selection ended before its clock was moved")
    return results


def clock_undo(patch: Patch, agent: "Agent") -> Dict[str, Any]:
    """Take a patch out of every process that runs with it, until none does. All are tried; Refused naming failures."""
    results = {}  # type: Dict[int, Dict[str, Any]]
    problems = {}  # type: Dict[int, str]
    deadline = time.monotonic() + 4.0
    while True:
        # Again, for a process may have forked before it was its turn. One whose routine had to stay is done.
        todo = {p: s for p, s in patched(patch, agent).items() if p not in problems and p not in results}
        if not todo:
            break
        for pid, stat in todo.items():
            try:
                results[pid] = dict(patch.undo(pid, deadline), comm=stat.comm)
                if not results[pid]["restored"]:
                    problems[pid] = "not restored"
            except (Refused, OSError) as error:
                if is_same(pid, stat.started):
                    problems[pid] = str(error)
                else:
                    results[pid] = {"pid": pid, "comm": stat.comm, "gone": True}
    if problems:
        raise Refused("; ".join("process %d: %s" % pair for pair in sorted(problems.items())))
    return {"processes": [results[pid] for pid in sorted(results)]}


def clock_left(pids: Iterable[int]) -> List[str]:
    """Which of these processes run with a vDSO that differs from this agent's own, byte by byte."""
    mine = Image(os.getpid())
    found = []
    for pid in pids:
        try:
            image = Image(pid)
        except (Refused, OSError):
            continue  # gone, or without a 64-bit vDSO; neither can carry a patch of ours
        if len(image.bytes) == len(mine.bytes) and not image.bytes.startswith(mine.code):
            found.append("process %d has a changed vDSO" % pid)
    return found


def clock_arguments(command: Dict[str, Any]) -> Tuple[int, int]:
    """(offset in ns, mask of clocks) of a clock_set."""
    offset = take(command, "offset", (int, float))
    if not -1e9 < offset < 1e9 or offset == 0:
        raise Refused("clock_set: 'offset' must be a number of seconds other than 0, at most 1e9, not %r" % offset)
    which = take(command, "clocks", str, "realtime")
    if which not in ("realtime", "monotonic", "both"):
        raise Refused("clock_set: 'clocks' must be realtime, monotonic or both, not %r" % which)
    groups = ("realtime", "monotonic") if which == "both" else (which,)
    mask = sum(1 << CLOCKS[name] for group in groups for name in MOVED[group])
    return round(offset * 1e9), mask


# -- the agent itself ---------------------------------------------------------------------------------------------


class Agent(object):
    """Reads commands, keeps what is in force, and undoes it on every way out."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.firewall = Firewall()
        self.listeners = Listeners()
        self.service_rule = "mount"
        self.recovered = []  # type: List[str]
        self.guardian = 0
        self.started_ns = now_ns()
        self.counts = {"commands": 0, "errors": 0}
        self._mount = namespace("self", "mnt")
        self._write_lock = threading.Lock()
        self._changes = queue.Queue()  # type: queue.Queue[Optional[Dict[str, Any]]]
        self._waiting = queue.Queue()  # type: queue.Queue[Dict[str, Any]]
        self._idle = self._workers = 0
        self._ending = threading.Lock()
        self._ended = False
        self._reader_gone = False
        self.looks = {
            "hello": self.op_hello,
            "http": http_request,
            "tcp": tcp_request,
            "listen": lambda command: dict(self.listeners.open()),
            "probe": self.op_probe,
            "shout": lambda command: {"errors": shout(take(command, "targets", list))},
            "heard": self.op_heard,
            "processes": self.op_processes,
            "stats": self.op_stats,
        }  # type: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]]
        self.changes = {
            "cut": self.op_cut,
            "mend": self.op_mend,
            "freeze": self.op_freeze,
            "thaw": self.op_thaw,
            "kill": self.op_kill,
            "clock_read": self.op_clock_read,
            "clock_set": self.op_clock_set,
            "clock_restore": self.op_clock_restore,
            "undo_all": self.op_undo_all,
            "verify_clean": self.op_verify_clean,
        }  # type: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]]

    # Who is who

    def own_processes(self, everyone: Dict[int, Stat]) -> Set[int]:
        """The agent, its guardian, their children, and the shells above the agent."""
        ours = descendants([os.getpid(), self.guardian], everyone)
        parent = everyone[os.getpid()].parent if os.getpid() in everyone else 0
        while parent > 1 and parent in everyone:
            ours.add(parent)
            parent = everyone[parent].parent
        return ours

    def role(self, pid: int, everyone: Dict[int, Stat], ours: Set[int]) -> str:
        """init, agent, idle (the sleeper that keeps a pod alive), service, ending, or node (all else on the node)."""
        if pid == 1:
            return "init"
        if pid in ours:
            return "agent"
        stat = everyone[pid]
        mount = namespace(pid, "mnt")
        if mount is None:
            return "ending"
        if mount != self._mount:
            return "service"
        if stat.comm == "sleep" and stat.parent <= 1:
            return "idle"
        if self.service_rule == "rest":
            return "service"
        return "node"

    # Looking

    def op_hello(self, command: Dict[str, Any]) -> Dict[str, Any]:
        rule = take(command, "service", str, None)
        if rule is not None:
            if rule not in ("mount", "rest"):
                raise Refused("hello: 'service' must be mount or rest, not %r" % rule)
            if rule == "rest" and os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE:
                raise Refused("hello: the rule 'rest' is refused here, outside a pid namespace of the node's own")
            self.service_rule = rule
        system = os.uname()
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "guardian": self.guardian,
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "kernel": system.release,
            "arch": system.machine,
            "boottime_ns": now_ns(),
            "journal": self.journal.path,
            "recovered": self.recovered,
        }

    def op_probe(self, command: Dict[str, Any]) -> Dict[str, Any]:
        timeout = take_seconds(command, "timeout", 0.3, 30.0)
        return {"results": probe(take(command, "targets", list), timeout)}

    def op_heard(self, command: Dict[str, Any]) -> Dict[str, Any]:
        words = [str(word) for word in take(command, "words", list)]
        return {"heard": self.listeners.heard(words, take_seconds(command, "timeout", 0.3, 30.0))}

    def op_processes(self, command: Dict[str, Any]) -> Dict[str, Any]:
        everyone = all_processes()
        ours = self.own_processes(everyone)
        rows = []
        for pid, stat in sorted(everyone.items()):
            row = {"pid": pid, "parent": stat.parent, "comm": stat.comm, "state": stat.state, "started": stat.started}
            row["threads"] = "".join(sorted(set(thread_states(pid).values())))
            row["role"] = self.role(pid, everyone, ours)
            rows.append(row)
        return {"processes": rows}

    def op_stats(self, command: Dict[str, Any]) -> Dict[str, Any]:
        return {
            "uptime_seconds": (now_ns() - self.started_ns) / 1e9,
            "commands": self.counts["commands"],
            "errors": self.counts["errors"],
            "held": sorted(self.journal.held),
            "threads": threading.active_count(),
        }

    # Changing

    def _fresh(self, command: Dict[str, Any], kind: str) -> str:
        """The journal's key of a new fault. Refused when it is in force already."""
        key = "%s:%s" % (kind, take(command, "fault", str))
        if key in self.journal.held:
            raise Refused("%s: a fault %r is in force already" % (command["op"], command["fault"]))
        return key

    def _held(self, command: Dict[str, Any], kind: str) -> Optional[str]:
        """The journal's key of a fault in force; None when it isn't and `missing_ok` says that this is fine."""
        key = "%s:%s" % (kind, take(command, "fault", str))
        if key in self.journal.held:
            return key
        if take(command, "missing_ok", bool, False):
            return None
        raise Refused("%s: no fault %r is in force" % (command["op"], command["fault"]))

    def op_cut(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Cut links. `fault` names it; `rules` see `rules_from`. All of it is in force when it returns."""
        key, rules = self._fresh(command, "cut"), rules_from(command)
        self.firewall.backend  # noqa: B018 - refused before anything is noted where no back end works
        self.journal.put(key, {})
        begin = now_ns()
        try:
            self.firewall.cut(key, rules)
        except Refused:
            self._undo(key)
            raise
        return {"begin_ns": begin, "end_ns": now_ns(), "rules": len(rules)}

    def op_mend(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Take a cut back. Also tells what its rules dropped, and whether they still were in force."""
        key = self._held(command, "cut")
        if key is None:
            return {"nothing_in_force": True}
        expected = sum(len(rules) for rules in self.firewall.cuts.values())
        hooks, drops, dropped = self.firewall.state()
        begin = now_ns()
        self._undo(key)
        return {
            "begin_ns": begin,
            "end_ns": now_ns(),
            "was_cut_throughout": hooks == 2 * len(HOOKS) and drops >= expected,
            "dropped_packets": dropped,
        }

    def op_freeze(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Stop the processes of a selection. When it returns every thread of every one is stopped (read from /proc)."""
        key, selection = self._fresh(command, "freeze"), Selection(self, command)
        deadline = time.monotonic() + take_seconds(command, "timeout", 4.0, 60.0)

        def note(held: Dict[int, Stat]) -> None:
            self.journal.put(key, {"held": [[pid, stat.started] for pid, stat in sorted(held.items())]})

        begin = now_ns()
        try:
            evidence = freeze(selection, note, deadline)
        except Refused:
            self._undo(key)
            raise
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    def op_thaw(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Let frozen processes run again. When it returns none of their threads is stopped."""
        key = self._held(command, "freeze")
        if key is None:
            return {"nothing_in_force": True}
        begin = now_ns()
        evidence = self._undo(key)
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    def op_kill(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """SIGKILL the processes of a selection. When it returns none is there. There is nothing to undo on the node."""
        deadline = time.monotonic() + take_seconds(command, "timeout", 4.0, 60.0)
        begin = now_ns()
        evidence = kill(Selection(self, command), deadline)
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    def op_clock_set(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Move the clock of the processes of a selection by `offset` s (`clocks`: realtime, monotonic, both).

        Those that live now are moved, and what they fork later; not what is started anew. Each process' own clock is
        read back by its own code path; `wrong` lists what did not move as asked.
        """
        key, selection = self._fresh(command, "clock"), Selection(self, command)
        selection.some()
        patch = Patch.plan(key, *clock_arguments(command))
        self.journal.put(key, patch.data)
        deadline = time.monotonic() + take_seconds(command, "timeout", 4.0, 60.0)
        begin = now_ns()
        try:
            processes = clock_apply(patch, selection, deadline)
        except (Refused, OSError) as error:
            self._undo(key)
            raise Refused(str(error)) from error
        return {"processes": processes, "begin_ns": begin, "end_ns": now_ns()}

    def op_clock_read(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """What the processes of a moved clock read now, in s ahead of this agent's clock."""
        key = "clock:%s" % take(command, "fault", str)
        if key not in self.journal.held:
            raise Refused("clock_read: no fault %r is in force" % command["fault"])
        patch, rows = Patch(self.journal.held[key]), []
        for pid, stat in sorted(patched(patch, self).items()):
            try:
                rows.append({"pid": pid, "comm": stat.comm, "ahead": patch.read(pid, time.monotonic() + 4.0)})
            except (Refused, OSError) as error:
                if is_same(pid, stat.started):
                    raise Refused("process %d: %s" % (pid, error)) from error
        return {"processes": rows}

    def op_clock_restore(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Give the processes their clock back; `moved` is by how much it jumped at that, read back from each."""
        key = self._held(command, "clock")
        if key is None:
            return {"nothing_in_force": True}
        begin = now_ns()
        evidence = self._undo(key)
        return dict(evidence, begin_ns=begin, end_ns=now_ns())

    # Undoing

    def _undo(self, key: str) -> Dict[str, Any]:
        """Undo one fault that is held. Safe to repeat; what it could not undo stays held."""
        entry = self.journal.held.get(key, {})
        evidence = undo(self, key, entry)
        self.journal.drop(key)
        return evidence

    def undo_everything(self) -> List[str]:
        """Undo all that is held; returns a line for each that failed. Never raises."""
        problems = []
        for key in sorted(self.journal.held, reverse=True):
            try:
                self._undo(key)
            except (Refused, OSError) as error:
                problems.append("%s: %s" % (key, error))
        return problems

    def op_undo_all(self, command: Dict[str, Any]) -> Dict[str, Any]:
        held = sorted(self.journal.held)
        problems = self.undo_everything()
        if problems:
            raise Refused("not everything could be undone: " + "; ".join(problems))
        return {"undone": held}

    def op_verify_clean(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Whether nothing of ours is in force on this node, read from the kernel; `left` says what is."""
        left = ["%s is held" % key for key in sorted(self.journal.held)]
        left += self.firewall.left()
        everyone = all_processes()
        ours = self.own_processes(everyone)
        for pid, stat in sorted(everyone.items()):
            if pid in ours or pid == 1:
                continue
            states = "".join(sorted(set(thread_states(pid).values())))
            if "T" in states:
                left.append("process %d (%s) is stopped" % (pid, stat.comm))
        left += clock_left(pid for pid in everyone if pid not in ours and pid != 1)
        return {"clean": not left, "left": left}

    def recover(self) -> None:
        """Undo what an agent before this one left. Reported in `hello`."""
        entries = self.journal.load()
        self.journal.held = dict(entries)
        for key in sorted(entries, reverse=True):
            if key.startswith("cut:"):
                self.firewall.purge()
            try:
                self._undo(key)
                self.recovered.append("%s undone" % key)
            except (Refused, OSError) as error:
                self.recovered.append("%s could not be undone: %s" % (key, error))
                log("recovery: " + self.recovered[-1])

    # The stream

    def answer(self, identity: Any, body: Dict[str, Any]) -> None:
        """Write one answer. When the reader is gone the agent ends, which undoes everything."""
        line = json.dumps(dict({"id": identity}, **body)).encode() + b"\n"
        with self._write_lock:
            if self._reader_gone:
                return
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                return
            except (OSError, ValueError):
                self._reader_gone = True
        threading.Thread(target=self.end, args=("stdout is gone",), daemon=True).start()

    def perform(self, command: Dict[str, Any], operation: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Dict[str, Any]:
        """Do one command; returns the body of its answer, whatever it does."""
        self.counts["commands"] += 1
        try:
            body = {"ok": operation(command)}  # type: Dict[str, Any]
        except Refused as error:
            body = {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - answered, logged with its traceback, and nothing is left undone
            log(traceback.format_exc())
            body = {"error": "%s failed: %s: %s" % (command.get("op"), type(error).__name__, error)}
        self.counts["errors"] += "error" in body
        return body

    def look(self) -> None:
        """Do and answer commands that change nothing, side by side with others. Runs in several threads.

        Their number is bounded, but stdin is read on whatever they do: its end must be seen even when all of them wait
        for a reader of stdout that has stopped reading.
        """
        while True:
            self._idle += 1
            command = self._waiting.get()
            self._idle -= 1
            self.answer(command.get("id"), self.perform(command, self.looks[str(command["op"])]))

    def dispatch(self, line: bytes) -> None:
        """Take one line from stdin. A line that is no command is answered with an error."""
        try:
            command = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            return self.answer(None, {"error": "not a command in JSON: %s" % error})
        if not isinstance(command, dict):
            return self.answer(None, {"error": "a command must be an object"})
        identity, op = command.get("id"), command.get("op")
        if not isinstance(identity, (int, str)):
            return self.answer(None, {"error": "a command needs an id"})
        if isinstance(op, str) and op in self.changes:
            self._changes.put(command)
        elif isinstance(op, str) and op in self.looks:
            self._waiting.put(command)
            if self._waiting.qsize() > self._idle and self._workers < MAX_WORKERS:
                self._workers += 1
                threading.Thread(target=self.look, daemon=True).start()
        else:
            known = ", ".join(sorted(list(self.looks) + list(self.changes)))
            self.answer(identity, {"error": "unknown op %r (known: %s)" % (op, known)})
        return None

    def serve(self) -> None:
        """Change things, one command after the other, until told to end. Runs in a thread of its own."""
        while True:
            command = self._changes.get()
            if command is None:
                return
            with self._ending:
                body = self.perform(command, self.changes[str(command["op"])])
            # Not while the lock is held: a reader that has stopped reading must not keep the agent from undoing.
            self.answer(command.get("id"), body)

    def end(self, why: str) -> None:
        """Undo everything and leave. Waits for the change that is under way; the first call wins."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            held = sorted(self.journal.held)
            problems = self.undo_everything()
            if held:
                log("%s: undid %s" % (why, ", ".join(held)))
            for problem in problems:
                log("could not undo " + problem)
            os._exit(1 if problems else 0)  # the guardian tries again what failed

    def read_commands(self, stream: Any) -> None:
        """Read stdin to its end. A line that is too long is refused, not kept."""
        while True:
            line = stream.readline(MAX_LINE)
            if not line:
                return
            if not line.endswith(b"\n") and len(line) >= MAX_LINE:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE)
                self.answer(None, {"error": "a line of more than %d bytes" % MAX_LINE})
            elif line.strip():
                self.dispatch(line)


def undo(agent: Agent, key: str, entry: Dict[str, Any]) -> Dict[str, Any]:
    """Undo what one journal entry describes, whether or not it was applied. Raises Refused when it can't be."""
    kind = key.partition(":")[0]
    if kind == "cut":
        agent.firewall.mend(key)
        return {}
    if kind == "freeze":
        return thaw(entry.get("held", []), time.monotonic() + 4.0)
    if kind == "clock":
        return clock_undo(Patch(entry), agent)
    raise Refused("the journal names a fault of an unknown kind, %r" % key)


def lock_node(journal: Journal, patience: float) -> int:
    """The lock that only one agent on a node holds, with its guardian. Refused when another keeps it for too long."""
    descriptor = os.open(os.path.join(journal.folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > end:
                owner = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
                raise Refused(
                    "another agent (process %s) has been active on this node for %g s" % (owner, patience)
                ) from None
            time.sleep(0.02)
            continue
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d" % os.getpid(), 0)
        return descriptor


def fork_guardian(agent: Agent) -> Tuple[int, int]:
    """Start the process that undoes everything should the agent die without doing so. Before any thread starts."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read_end)
        return pid, write_end
    os.close(write_end)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    # stderr stays open only until the agent is gone: what is waiting for its end of file must not wait for us
    os.dup2(null, 2)
    os.read(read_end, 1)  # returns when the agent is gone
    status = 0
    try:
        agent.recover()
        status = 1 if agent.journal.held else 0
    finally:
        os._exit(status)


def main() -> None:
    """Take over the node (undoing what was left on it), then serve the stream until its end."""
    try:
        journal = Journal(os.environ.get("FENCEPOST_JOURNAL"))
        lock_node(journal, 10.0)
    except (Refused, OSError) as error:
        sys.stdout.write(json.dumps({"id": None, "fatal": str(error)}) + "\n")
        sys.stdout.flush()
        sys.exit(1)
    agent = Agent(journal)
    agent.recover()
    agent.guardian, keep = fork_guardian(agent)
    os.set_inheritable(keep, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, frame: threading.Thread(target=agent.end, args=("signal %d" % n,)).start())
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    threading.Thread(target=agent.serve, daemon=True).start()
    agent.read_commands(sys.stdin.buffer)
    agent.end("stdin ended")


if __name__ == "__main__":
    main()

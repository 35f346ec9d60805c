"""The agent's start: the lock, the guardian, and what happens between the first byte and the last."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
from typing import Tuple

from nemesis.agent.base import Refused
from nemesis.agent.commands import Agent
from nemesis.agent.journal import Journal
from nemesis.agent.stream import Stream


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


def main(code: str) -> None:
    """Take over the node (undoing what was left on it), then serve the stream until its end.

    `code` is the hash of the parcel that this code came in; the hello says it.
    """
    try:
        journal = Journal(os.environ.get("FENCEPOST_JOURNAL"))
        lock_node(journal, 10.0)
    except (Refused, OSError) as error:
        sys.stdout.write(json.dumps({"id": None, "fatal": str(error)}) + "\n")
        sys.stdout.flush()
        sys.exit(1)
    agent = Agent(journal, code)
    agent.recover()
    agent.roles.guardian, keep = fork_guardian(agent)
    os.set_inheritable(keep, False)
    stream = Stream(agent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, frame: threading.Thread(target=stream.end, args=("signal %d" % n,)).start())
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    threading.Thread(target=stream.serve, daemon=True).start()
    stream.read_commands(sys.stdin.buffer)
    stream.end("stdin ended")

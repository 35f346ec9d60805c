"""The stub: makes the site's namespaces, forks its pid 1 into them, and kills that when the harness is gone.

Started by its path with `python3 -I -S`. Its arguments are labels, for people and for `fencepost clean`, and then
`NAME=VALUE`: `lifeline` and `socket` (descriptors), `folder`, `probe`. Over the lifeline it says when it is in its user
namespace, so that the harness can write the maps of ids; the end of it is the end of the site, unless "keep" came.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys

sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from harness.runtime.local.inside import kernel, probe, wire
from harness.runtime.local.inside.site import Site


def main() -> None:
    """Stay until the site has ended."""
    given = dict(word.partition("=")[::2] for word in sys.argv[1:])
    lifeline, sock = (socket.socket(fileno=int(given[name])) for name in ("lifeline", "socket"))
    for each in (lifeline, sock):
        each.set_inheritable(False)
    os.chdir("/")
    os.umask(0o022)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        kernel.unshare(kernel.CLONE_NEWUSER, "a user namespace")
        wire.send(lifeline, {"unshared": True})
        if wire.receive(lifeline) is None:
            return
        kernel.unshare(
            kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC,
            "the site's namespaces",
        )
        # Who may look into a process that has changed its rights is the machine's root alone, unless it says otherwise.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    except OSError as error:
        wire.send(lifeline, {"fatal": kernel.said(error)})
        return
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(theirs)
        lifeline.close()
        if given["probe"] == "1":
            probe.run(given["folder"], sock)
        Site(given["folder"], sock, ours).run()
    os.close(ours)
    sock.close()
    _attend(lifeline, pid)


def _attend(lifeline: socket.socket, pid: int) -> None:
    """Kill the site when the lifeline ends; return when it has ended, with all that was in it."""
    ended = os.pidfd_open(pid)
    poll = select.poll()
    for descriptor in (lifeline.fileno(), ended):
        poll.register(descriptor, select.POLLIN)
    kept = False
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == ended:
                os.waitpid(pid, 0)
                return
            if wire.receive(lifeline) is not None:
                kept = True
                continue
            poll.unregister(lifeline)
            if not kept:
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()

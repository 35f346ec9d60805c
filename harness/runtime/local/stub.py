"""The stub of a site, seen from the harness: started, given its user, told to keep the site, ended.

All of a site hangs on this one process (inside/start.py): when it ends, everything in the site does, at once and
whatever state it is in. Its command line carries the labels of the site, so that others find it (left.py).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, RuntimeUnavailable
from harness.private import private_folder
from harness.runtime import labels
from harness.runtime.local.inside import wire

PROGRAM = Path(__file__).parent / "inside" / "start.py"
START_SECONDS = 30.0


class Refused(RuntimeUnavailable):
    """The machine refuses what a site needs. `doing` names it (`user namespace`), `reason` is what the kernel said."""

    def __init__(self, site_id: str, doing: str, reason: str) -> None:
        self.doing, self.reason = doing, reason
        super().__init__(f"site {site_id} can't be made on this machine ({doing}: {reason})")


class Stub:
    """A running stub. `socket` is the harness's end of the socket to the site's pid 1."""

    def __init__(self, site_id: str, owner: str, *, probe: bool = False) -> None:
        """Start it; with `probe` to see what is possible here (inside/probe.py).

        Raises HarnessError when the site is there already, Refused when it can't be made.
        """
        self._site_id, self._kept = site_id, False
        claim = _claim(site_id)
        self._lifeline, theirs = wire.pair()
        self.socket, inner = wire.pair()
        folder = private_folder("local")
        argv = [
            *(sys.executable, "-I", "-S", str(PROGRAM)),
            *(f"{labels.PROJECT}=1", f"{labels.SITE}={site_id}", f"{labels.OWNER}={owner}"),
            *(f"lifeline={theirs.fileno()}", f"socket={inner.fileno()}", f"folder={folder}", f"probe={int(probe)}"),
        ]
        self._words = open(os.memfd_create("words", os.MFD_CLOEXEC), "rb", buffering=0)  # noqa: SIM115 - until it ends
        passed = (theirs.fileno(), inner.fileno(), claim.fileno())
        with claim, theirs, inner:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                pass_fds=passed,
                start_new_session=True,
            )
        try:
            self._give_user()
        except BaseException:
            self.end(START_SECONDS)
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def _give_user(self) -> None:
        """Who runs us is root in there, and there is nobody else; a tree has but one owner, too."""
        self._lifeline.settimeout(START_SECONDS)
        try:
            received = wire.receive(self._lifeline)
            if received is None or "fatal" in received[0]:
                raise Refused(self._site_id, "user namespace", self.why(received))
            Path(f"/proc/{self.pid}/setgroups").write_text("deny")
            for name, mine in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
                Path(f"/proc/{self.pid}/{name}").write_text(f"0 {mine} 1")
            wire.send(self._lifeline, {"mapped": True})
        except TimeoutError as error:
            raise Refused(self._site_id, "user namespace", f"not made in {START_SECONDS:g} s") from error
        except OSError as error:
            raise Refused(self._site_id, "user namespace", f"it gets no users: {error}") from error

    def why(self, received: tuple[dict[str, Any], list[int], int] | None = None) -> str:
        """Why it could not make the site: what it said, or what Python said at its end."""
        if received is None:
            self._lifeline.settimeout(0.0)
            with suppress(OSError):
                received = wire.receive(self._lifeline)
        if received is not None and "fatal" in received[0]:
            return str(received[0]["fatal"])
        words = os.pread(self._words.fileno(), 65536, 0).decode(errors="replace").strip().splitlines()
        return words[-1] if words else "its first process ended without a word"

    def keep(self) -> None:
        """Let it go on when the harness is gone."""
        wire.send(self._lifeline, {"keep": True})
        self._kept = True

    def end(self, within_seconds: float) -> bool:
        """End the site, and wait until all in it is gone; whether it is, in that time. Idempotent.

        The stub ends when the site's pid 1 has, and that ends when everything in there is gone.
        """
        if self._kept and self._process.poll() is None:
            self._process.kill()  # which is the death signal of the site's pid 1, too
        self._lifeline.close()
        try:
            self._process.wait(max(0.0, within_seconds))
        except subprocess.TimeoutExpired:
            return False
        self._words.close()
        return True


def _claim(site_id: str) -> socket.socket:
    """A name that only one site of this user can have on this machine, for as long as its stub lives. No file."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        claim.bind(f"\0{labels.PROJECT}-{os.getuid()}-{site_id}")
    except OSError as error:
        claim.close()
        raise HarnessError(
            f"there is a site {site_id} already: another run has it, or left it behind "
            f"(`fencepost clean --site {site_id}` removes it)"
        ) from error
    return claim

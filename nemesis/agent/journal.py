"""The journal: what is (about to be) in force on this node, on disk before it is applied."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, Optional

from nemesis.agent.base import Refused, log, read_all, read_at_once
from nemesis.agent.processes import namespace


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
        self.held: Dict[str, Dict[str, Any]] = {}

    @classmethod
    def _root(cls) -> str:
        memory = set()
        for line in read_all("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
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
        return read_at_once("/proc/sys/kernel/random/boot_id").decode().strip()

    def load(self) -> Dict[str, Dict[str, Any]]:
        """What an agent before this one left; nothing when it was of an earlier boot, whose faults went with it."""
        try:
            data = json.loads(read_all(self.path).decode("utf-8"))
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

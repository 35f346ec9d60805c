"""The agent, loaded once in a site's pid 1, so that each node's is a fork of what is there already.

A Python of its own takes 85 ms of a processor to start and to load the agent, and a trial has eight of them; a fork
takes 5 ms. It is the same agent: what was loaded is held against the parcel that it would have been sent
(`nemesis.parcel`), byte by byte, and its hello says the hash of that.

A fork stands in its node's root, where nothing of this Python is: so all that the agent imports later is loaded here.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - whoever looks up a name
import http.client  # noqa: F401 - requests to servers
import os
import sys
import tokenize  # noqa: F401 - tracebacks

from nemesis.agent import loader, start

PREFIX = "nemesis"

loader.sha256(b"")  # which imports what it takes


def _sources() -> dict[str, bytes]:
    """Module -> the source that it was loaded from."""
    found = {}
    for name, module in list(sys.modules.items()):
        if (name == PREFIX or name.startswith(f"{PREFIX}.")) and (path := getattr(module, "__file__", None)):
            with open(path, "rb") as file:
                found[name] = file.read()
    return found


SOURCES = _sources()


def run(parcel: bytes) -> None:
    """Be the agent of this parcel, in a fork whose stdin and stdout are the harness's. Never returns.

    Where the parcel holds other code than what was loaded (a long run's harness is older than its files on disk), it is
    loaded from the parcel after all.
    """
    archive = loader.Parcel(parcel)
    if all(name in archive.modules and archive.modules[name][1] == source for name, source in SOURCES.items()):
        sys.meta_path.insert(0, archive)
        start.main(loader.sha256(parcel))
    else:
        for name in SOURCES:
            del sys.modules[name]
        loader.run(parcel)


def read(descriptor: int) -> bytes:
    """All that a file in memory holds, whoever else reads it."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

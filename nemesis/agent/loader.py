"""The first thing that runs on a node: it imports the agent from a parcel in memory, and starts it.

The parcel is a zip of plain, uncompressed sources (`nemesis.parcel`). Python can import from a zip by itself, but only
from a file, and a node may have no disk that can be written to; a memfd would be a file, from Python 3.8 on. And the
library's zipfile takes longer to import than the whole agent. So this reads what it needs of the format: the names, the
lengths and the bytes.

It is sent in front of the parcel, and run with `parcel` among its globals.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import struct
import sys
from typing import Any, Dict, Optional, Tuple

PLACE = "agent.zip/"
"""What the files seem to lie in, for tracebacks."""


class Parcel(object):
    """Finds and loads the modules of a parcel (for sys.meta_path); tracebacks show their lines."""

    def __init__(self, data: bytes) -> None:
        self.modules: Dict[str, Tuple[str, bytes]] = {}
        """The name of a module -> its path in the zip, and its source."""
        at = 0
        if data[-22:-18] != b"PK\5\6":
            raise ImportError("the parcel is damaged at its end")
        while data[at : at + 4] == b"PK\3\4":
            method, _, _, packed, length, name_length, extra = struct.unpack_from("<HIIIIHH", data, at + 8)
            start = at + 30 + name_length + extra
            path = data[at + 30 : at + 30 + name_length].decode("utf-8")
            at = start + length
            if method or packed != length or at > len(data):
                raise ImportError("the parcel is damaged at %s" % path)
            name = path[: -len(".py")].replace("/", ".")
            if name.endswith(".__init__"):
                name = name[: -len(".__init__")]
            self.modules[name] = (path, data[start:at])

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        """What Python asks of every finder."""
        if name not in self.modules:
            return None
        file = PLACE + self.modules[name][0]
        package = file.endswith("/__init__.py")
        # mypy and typeshed know only loaders that inherit from importlib.abc, which takes 10 ms to import
        spec = importlib.machinery.ModuleSpec(name, self, origin=file, is_package=package)  # type: ignore[arg-type]
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [file[: -len("/__init__.py")]]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: Any) -> None:
        """Run a module's source."""
        path, source = self.modules[module.__name__]
        exec(compile(source, PLACE + path, "exec", dont_inherit=True), module.__dict__)

    def get_source(self, name: str) -> str:
        """What linecache asks for, when a traceback is made."""
        return self.modules[name][1].decode("utf-8")


def sha256(data: bytes) -> str:
    """In hex. By Python's own code (_sha2 from 3.12 on, _sha256 before): hashlib loads OpenSSL, for several ms."""
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return str(module.sha256(data).hexdigest())
    raise ImportError("this Python has no sha256")


def run(parcel: bytes) -> None:
    """Import the agent from a parcel, before anything of that name on the node, and start it."""
    sys.meta_path.insert(0, Parcel(parcel))
    from nemesis.agent.start import main

    main(sha256(parcel))

"""An etcd of the tests' own on loopback, with TLS and users, as a cluster that exists: nothing of it is a trial's."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import trees
from harness.errors import FencepostError
from tests.waiting import until

PASSWORD = "correct-Horse-7"
ROOT = "battery-Staple-9"
USER = "locksmith"


def binary() -> str:
    """An etcd that this machine can run: its own, or the one in the tree of the image. Skips the test without."""
    if (own := shutil.which("etcd")) is not None:
        return own
    try:
        layers = trees.need(["etcd"])["etcd"].layers
    except FencepostError as error:
        pytest.skip(f"there is no etcd to be had: {error}")
    found = next((path for layer in layers if (path := Path(layer) / "usr/bin/etcd").is_file()), None)
    if found is None or subprocess.run([found, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("the etcd of the tree doesn't run here")
    return str(found)


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def authority(folder: Path, name: str) -> Path:
    """A certificate authority of its own; its certificate."""
    openssl(
        folder,
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
        *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
    )
    return folder / f"{name}.pem"


def certificate(folder: Path, ca: str, name: str, alternatives: str) -> tuple[Path, Path]:
    """(certificate, key) signed by that authority."""
    openssl(
        folder,
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
    )
    (folder / f"{name}.ext").write_text(f"subjectAltName={alternatives}\n")
    openssl(
        folder,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial"),
        *("-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
    )
    return folder / f"{name}.pem", folder / f"{name}.key"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass
class Etcd:
    """One that runs; `ca` is None where it speaks no TLS."""

    port: int
    ca: Path | None
    users: bool
    own: tuple[str, str] | None = None
    """Certificate and key with which its owner comes."""

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def call(self, path: str, document: Any, token: str | None = None) -> Any:
        """One request as its owner makes it; raises urllib's errors."""
        scheme = "http" if self.ca is None else "https"
        request = urllib.request.Request(
            f"{scheme}://{self.endpoint}/v3/{path}", json.dumps(document).encode(), {"Content-Type": "application/json"}
        )
        if token is not None:
            request.add_header("Authorization", token)
        context = None if self.ca is None else ssl.create_default_context(cafile=str(self.ca))
        if context is not None and self.own is not None:
            context.load_cert_chain(*self.own)
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return json.load(answer)

    def as_root(self, path: str, document: Any) -> Any:
        if not self.users:
            return self.call(path, document)
        return self.call(path, document, self.call("auth/authenticate", {"name": "root", "password": ROOT})["token"])

    def keys(self) -> dict[str, tuple[str, str]]:
        """Everything that is in it: key -> (value, revision of its last change)."""
        all_keys = {"key": base64.b64encode(b"\0").decode(), "range_end": base64.b64encode(b"\0").decode()}
        found = self.as_root("kv/range", all_keys).get("kvs", [])
        return {base64.b64decode(kv["key"]).decode(): (kv["value"], kv["mod_revision"]) for kv in found}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def running(
    folder: Path,
    *,
    tls: Sequence[Path] = (),
    ca: Path | None = None,
    users: bool = False,
    words: Sequence[str] = (),
    client: Mapping[str, str] | None = None,
) -> Iterator[Etcd]:
    """An etcd; with TLS by that certificate and key, and with users: root, and one who may use fencepost/ alone."""
    port, peer = free_ports(2)
    scheme = "https" if tls else "http"
    files = ("--cert-file", str(tls[0]), "--key-file", str(tls[1])) if tls else ()
    with (folder / f"etcd-{port}.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(binary(), "--name", "own", "--data-dir", str(folder / f"data-{port}"), *files, *words),
                *("--listen-client-urls", f"{scheme}://127.0.0.1:{port}"),
                *("--advertise-client-urls", f"{scheme}://127.0.0.1:{port}"),
                *(
                    "--listen-peer-urls",
                    f"http://127.0.0.1:{peer}",
                    "--initial-cluster",
                    f"own=http://127.0.0.1:{peer}",
                ),
                *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--unsafe-no-fsync"),
            ],
            stdout=log,
            stderr=log,
        )
        own = None if client is None else (client["cert_file"], client["key_file"])
        etcd = Etcd(port, ca, users=False, own=own)
        try:
            until(lambda: answers(etcd), "etcd answers")
            etcd.call("kv/put", {"key": b64("app/config"), "value": b64("not yours")})
            etcd.call("kv/put", {"key": b64("fencepost"), "value": b64("only begins alike")})
            if users:
                _add_users(etcd)
                etcd.users = True
            yield etcd
        finally:
            process.terminate()
            process.wait(10)


def answers(etcd: Etcd) -> bool:
    try:
        return "header" in etcd.call("maintenance/status", {}) and bool(etcd.call("kv/range", {"key": b64("x")}))
    except OSError:
        return False


def _add_users(etcd: Etcd) -> None:
    for name, password, role in (("root", ROOT, "root"), (USER, PASSWORD, "locks")):
        etcd.call("auth/user/add", {"name": name, "password": password})
        etcd.call("auth/role/add", {"name": role})
        etcd.call("auth/user/grant", {"user": name, "role": role})
    perm = {"permType": "READWRITE", "key": b64("fencepost/"), "range_end": b64("fencepost0")}
    etcd.call("auth/role/grant", {"name": "locks", "perm": perm})
    etcd.call("auth/enable", {})

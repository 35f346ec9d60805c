"""An etcd of the tests' own on loopback, with TLS and users, as a cluster that exists: nothing of it is a trial's."""

from __future__ import annotations

import base64
import datetime
import io
import ipaddress
import json
import shutil
import socket
import ssl
import subprocess
import tarfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from harness import images, trees
from harness.errors import FencepostError
from tests.waiting import until

PASSWORD = "correct-Horse-7"
ROOT = "battery-Staple-9"
USER = "locksmith"


def binary(folder: Path) -> str:
    """An etcd that this machine can run: its own, that in the tree, or a copy of that in the image. Skips without."""
    if (own := shutil.which("etcd")) is not None:
        return own
    found: list[Path] = []
    with suppress(FencepostError):
        found += [layer / "usr/bin/etcd" for layer in trees.need(["etcd"])["etcd"].layers]
    with suppress(FencepostError):
        found += [_copied(folder)] if not any(path.is_file() for path in found) else []
    path = next((path for path in found if path.is_file()), None)
    if path is None or subprocess.run([path, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no etcd that runs here")
    return str(path)


def _copied(folder: Path) -> Path:
    """The one in the image, which an engine has."""
    client = images.connect()
    container = client.containers.create(images.resolve(client, ["etcd"])["etcd"].reference)
    try:
        chunks, _ = container.get_archive("/usr/bin/etcd")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            archive.extractall(folder, filter="data")
    finally:
        container.remove()
    return folder / "etcd"


def authority(folder: Path, name: str) -> Path:
    """A certificate authority of its own, as people make them: without the extensions that a strict reader wants."""
    return _certify(folder, name, ec.generate_private_key(ec.SECP256R1()), None, None)


def certificate(folder: Path, ca: str, name: str, alternatives: str) -> tuple[Path, Path]:
    """(certificate, key) signed by that authority, for `IP:127.0.0.1,DNS:etcd.example`."""
    return _certify(folder, name, ec.generate_private_key(ec.SECP256R1()), ca, alternatives), folder / f"{name}.key"


def _certify(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, ca: str | None, alternatives: str | None
) -> Path:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, signing = subject, key
    if ca is not None:
        issuer = x509.load_pem_x509_certificate((folder / f"{ca}.pem").read_bytes()).subject
        loaded = serialization.load_pem_private_key((folder / f"{ca}.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing = loaded
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
    )
    if alternatives is not None:
        kinds: dict[str, Callable[[str], x509.GeneralName]] = {
            "IP": lambda text: x509.IPAddress(ipaddress.ip_address(text)),
            "DNS": x509.DNSName,
        }
        names = [kinds[kind](text) for kind, _, text in (each.partition(":") for each in alternatives.split(","))]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    path = folder / f"{name}.pem"
    path.write_bytes(made.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


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
        if context is not None:
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python's default from 3.13 on; our authority is a lax one
        if context is not None and self.own is not None:
            context.load_cert_chain(*self.own)
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return json.load(answer)

    def as_root(self, path: str, document: Any) -> Any:
        if not self.users:
            return self.call(path, document)
        return self.call(path, document, self.call("auth/authenticate", {"name": "root", "password": ROOT})["token"])

    def contents(self) -> dict[str, tuple[str, str]]:
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
                *(binary(folder), "--name", "own", "--data-dir", str(folder / f"data-{port}"), *files, *words),
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
            process.wait(60)


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

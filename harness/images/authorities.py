"""The host's extra certificate authorities, for builds behind a proxy that looks into TLS."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import certifi

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_ADDED_BY_ADMIN = ("/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors")
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_PUBLIC = Path("/usr/share/ca-certificates")


def extra_authorities() -> dict[str, bytes]:
    """Certificates that this host trusts beyond the public ones: file name -> PEM. Empty on most machines.

    Taken from where an administrator adds them, and from the bundles that SSL_CERT_FILE and its like name.
    """
    public = set(_certificates(certifi.contents()))
    for file in _PUBLIC.rglob("*.crt") if _PUBLIC.is_dir() else ():
        public.update(_certificates(file.read_text(errors="replace")))
    sources = [file for folder in _ADDED_BY_ADMIN for file in sorted(Path(folder).rglob("*")) if file.is_file()]
    sources += [
        Path(os.environ[name]) for name in _BUNDLES if os.environ.get(name) and Path(os.environ[name]).is_file()
    ]
    extra = {
        der: None for file in sources for der in _certificates(file.read_text(errors="replace")) if der not in public
    }
    return {f"{hashlib.sha256(der).hexdigest()[:16]}.crt": _pem(der) for der in extra}


def fingerprint(authorities: dict[str, bytes]) -> str:
    """One word for a set of authorities. The base image carries it, and is made again when the host has others."""
    return hashlib.sha256(" ".join(sorted(authorities)).encode()).hexdigest()[:12] if authorities else "none"


def _certificates(text: str) -> Iterator[bytes]:
    for match in _PEM.finditer(text):
        try:
            yield base64.b64decode("".join(match[1].split()), validate=True)
        except binascii.Error:
            continue  # something else between the markers; whoever uses the bundle ignores it too


def _pem(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"

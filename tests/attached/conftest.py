"""Clusters of the tests' own, once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attached import etcd
from tests.attached.etcd import Etcd


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two authorities ("ours", "other") and a server's certificate of the first ("server")."""
    folder = tmp_path_factory.mktemp("papers")
    for name in ("ours", "other"):
        etcd.authority(folder, name)
    etcd.certificate(folder, "ours", "server", "IP:127.0.0.1,DNS:etcd.example")
    etcd.certificate(folder, "ours", "elsewhere", "DNS:elsewhere.example")
    return folder


@pytest.fixture(scope="session")
def guarded(papers: Path) -> Iterator[Etcd]:
    """With TLS, and users who must log in."""
    tls = (papers / "server.pem", papers / "server.key")
    with etcd.running(papers, tls=tls, ca=papers / "ours.pem", users=True) as running:
        yield running


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """With neither."""
    with etcd.running(tmp_path_factory.mktemp("plain")) as running:
        yield running

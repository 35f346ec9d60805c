"""The protected resource: PostgreSQL on a node of its own, which no fault touches. Contenders write to it
(`workloads/resource.py`); the harness starts it and reads back what it accepted, through a contender's node, because
the host has no route into a trial's network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.runtime.base import Node, ServiceSpec

IMAGE = "postgres"
PORT = 5432
USER = "fencepost"
PASSWORD = "fencepost"  # of a database that lives for minutes on a network that nobody else is on
DATABASE = "fencepost"

SETTINGS: Mapping[str, str] = {
    # It must survive nothing: a trial whose resource crashes is void. What is judged is the order in which it accepted.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    # Idle helpers only cost start-up and memory here.
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "max_logical_replication_workers": "0",
    "max_worker_processes": "0",
}


def service(image: str = IMAGE) -> ServiceSpec:
    """How PostgreSQL is run: the official image's own environment and command line."""
    command = ["postgres", *(word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}"))]
    env = {
        "POSTGRES_USER": USER,
        "POSTGRES_PASSWORD": PASSWORD,
        "POSTGRES_DB": DATABASE,
        "POSTGRES_HOST_AUTH_METHOD": "trust",
        "POSTGRES_INITDB_ARGS": "--no-sync",
    }
    return ServiceSpec(image=image, command=command, env=env)


def connection(host: str) -> dict[str, Any]:
    """How it is reached on this host: the keys of "resource" in workloads/PROTOCOL.md, without the run."""
    return {"host": host, "port": PORT, "user": USER, "password": PASSWORD, "dbname": DATABASE}


def ready(node: Node) -> tuple[bool, str]:
    """Whether the resource on this node takes connections, in PostgreSQL's words. One look; slow (a new process)."""
    done = node.run(["pg_isready", "-h", "127.0.0.1", "-p", str(PORT), "-U", USER])
    return done.exit_code == 0, (done.stdout + done.stderr).decode(errors="replace").strip()


def read_ledger(node: Node, config: Mapping[str, Any], *, timeout_seconds: float = 30.0) -> list[dict[str, Any]]:
    """All writes that the resource accepted in this run, in its own order, read through a contender's node.

    `config` is `connection(host)` with "run". Rows: lock, resource, seq, process, token, read, version, at.
    """
    done = node.run(
        ["python3", "-m", "workloads.resource", "--dump"],
        stdin=json.dumps(config).encode() + b"\n",
        timeout_seconds=timeout_seconds,
    )
    if done.exit_code != 0:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise HarnessError(
            f"the ledger could not be read through {node.name}: {told[-1] if told else 'no reason given'}"
        )
    return [json.loads(line) for line in done.stdout.splitlines()]

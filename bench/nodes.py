"""How long nodes take on each runtime that can be used: one, twelve, and all that a trial has until it is healthy.

    python -m bench.nodes                      # docker and local in turn, five rounds
    python -m bench.nodes local -n 20 --only etcd
    python -m bench.nodes docker local --sites 4

Prints a Markdown table, the median and the worst of all rounds, in ms. A round opens a site, starts one node and then
twelve more, runs a program on one, and removes them. `healthy` is what a trial waits for: from no site at all to three
servers that have elected a leader and taken a write, with agents, five contender nodes, and the resource taking
connections. With `--sites` so many of these side by side, the turns of the machine included.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from harness import registry
from harness.errors import FencepostError
from harness.runtime.base import NodeSpec, Runtime
from harness.runtime.choice import choose
from harness.systems.base import Settings, System
from harness.trial import resource
from harness.trial.cluster import Cluster
from harness.trial.lane import Lane

TWELVE = 12
CONTENDERS = 5
SERVERS = 3
READY_SECONDS = 60.0

Times = dict[str, list[float]]
"""What was timed -> seconds, one for each round."""


@contextmanager
def timed(times: Times, what: str) -> Iterator[None]:
    """Time what is done inside."""
    began = time.monotonic()
    yield
    times.setdefault(what, []).append(time.monotonic() - began)


def nodes(runtime: Runtime, times: Times) -> None:
    """One round of nodes without a service."""
    with timed(times, "site"):
        site = runtime.open_site(f"bench-{secrets.token_hex(4)}")
    try:
        with timed(times, "one node"):
            (one,) = site.start_nodes([NodeSpec("one")])
        with timed(times, "12 nodes"):
            many = site.start_nodes([NodeSpec(f"n{number}") for number in range(TWELVE)])
        with timed(times, "run `true`"):
            one.run(["true"])
        with timed(times, "12 nodes removed"):
            site.remove_nodes(many)
    finally:
        with timed(times, "site closed"):
            site.close()


def healthy(runtime: Runtime, system: System, times: Times) -> None:
    """One round of all that a trial has."""
    settings = Settings(ttl_seconds=2.0, servers=SERVERS, image=system.image)
    with tempfile.TemporaryDirectory() as folder:
        lane = Lane(runtime, f"bench-{secrets.token_hex(4)}")
        try:
            with timed(times, f"{system.name} healthy"):
                _bring_up(lane, system, settings, Path(folder))
        finally:
            with timed(times, f"{system.name} removed"):
                lane.close()


def _bring_up(lane: Lane, system: System, settings: Settings, logs: Path) -> None:
    """As harness/trial/bringup.py does it."""
    with lane.site.starting(), ThreadPoolExecutor(max_workers=1) as pool:
        prepared = pool.submit(lane.prepare, CONTENDERS, logs)
        servers = lane.site.start_nodes([NodeSpec(name=f"n{number}") for number in range(1, settings.servers + 1)])
        lane.agents.update(lane.open_agents(servers, logs))
        cluster = Cluster(system, settings, servers, lane.agents)
        cluster.start()
        prepared.result()
        cluster.wait_healthy(lambda: None)
        _until("the resource", lambda: resource.ready(lane.resource)[0])


def _until(what: str, look: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_SECONDS
    while not look():
        if time.monotonic() > end:
            raise FencepostError(f"{what} was not ready in {READY_SECONDS:g} s")
        time.sleep(0.02)


def table(found: dict[str, Times]) -> str:
    """A column for each runtime, a row for each thing that was timed."""
    lines = ["| ms, median (worst) | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for what in next(iter(found.values())):
        cells = [
            f"{statistics.median(each):.0f} ({max(each):.0f})"
            for times in found.values()
            for each in [[1000 * seconds for seconds in times[what]]]
        ]
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runtimes", nargs="*", default=["docker", "local"])
    parser.add_argument("-n", type=int, default=5, help="rounds")
    parser.add_argument("--only", default="etcd", help="systems, with commas between them")
    parser.add_argument("--sites", type=int, default=1, help="how many trials' worth side by side")
    given = parser.parse_args(words)
    runtimes = {name: choose(name).runtime for name in given.runtimes}
    systems = [registry.load("systems", name)() for name in given.only.split(",")]
    found: dict[str, Times] = {name: {} for name in runtimes}
    for _ in range(given.n):
        for name, runtime in runtimes.items():  # in turn, so that what else the machine does is shared by all
            nodes(runtime, found[name])
            for system in systems:
                with ThreadPoolExecutor(max_workers=given.sites) as pool:
                    work = [pool.submit(healthy, runtime, system, found[name]) for _ in range(given.sites)]
                    for each in work:
                        each.result()
    print(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])

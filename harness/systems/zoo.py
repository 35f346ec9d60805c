"""The zoo: a lock service of our own, right, and wrong on purpose with `bug`. A positive control of the verdicts.

It runs in the contenders' image, which has it (`workloads/zoo`), so it needs none of its own. What it does is said in
`workloads/zoo/rules.py`, and what shows each bug in the matrix `zoo`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import AgentError, UsageError
from harness.runtime.base import ServiceSpec
from harness.systems.asking import LOOK_SECONDS, ask_all, options, says
from harness.systems.base import Leadership, LeaseTerms, Server, Settings
from workloads.zoo.rules import BUGS, PLACE_TTLS

PORT = 7500
DATA = "/var/lib/zoo/journal"
OPTIONS: Mapping[str, tuple[type, Any]] = {"bug": (str, "")}

WALL, MONOTONIC = "leases end by time.time() (the bug wall-clock)", "leases end by time.monotonic()"


class Zoo:
    """See the module. Option: bug, one of `workloads.zoo.rules.BUGS`; a right lock without."""

    name = "zoo"
    summary = "A lock of our own, right, or wrong on purpose (bug=…): a positive control."
    image = "contender"
    server_counts: tuple[int, ...] = (1,)
    client = "zoo"
    port = PORT
    healthy_within_seconds = 20.0
    attaching = "it is here to be wrong on purpose, so nobody has one"

    def _bug(self, settings: Settings) -> str | None:
        bug: str = options(settings, OPTIONS)["bug"]
        if bug and bug not in BUGS:
            near = difflib.get_close_matches(bug, BUGS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(BUGS)}"
            raise UsageError(f"system option 'bug' can't be {bug!r}; {hint}")
        return bug or None

    def plan(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, ServiceSpec]:
        """See `System.plan`."""
        bug = self._bug(settings)
        command = ["python3", "-m", "workloads.zoo.server", "--port", str(PORT), "--data", DATA]
        command += ["--bug", bug] if bug else []
        return {name: ServiceSpec(image=settings.image, command=command) for name in nodes}

    def recorded(self, settings: Settings) -> dict[str, Any]:
        """See `System.recorded`."""
        bug = self._bug(settings)
        return {
            "bug": bug,
            "wrong": BUGS[bug] if bug else None,
            "lease_clock": WALL if bug == "wall-clock" else MONOTONIC,
            "place_ttls": PLACE_TTLS,
        }

    def terms(self, settings: Settings) -> LeaseTerms:
        """See `Termed.terms`: those of the right lock, save for the clock that leases run on."""
        ttl, wall = settings.ttl_seconds, self._bug(settings) == "wall-clock"
        return LeaseTerms(
            ttl_seconds=ttl,
            granularity_seconds=0.0,
            least_seconds=0.1,
            given_away_least_seconds=ttl,
            given_away_most_seconds=ttl * (1 + PLACE_TTLS) + 0.1,  # where whoever is next in line is dead, too
            hand_over_seconds=1.0,
            lease_clock="realtime" if wall else "monotonic",
            lease_clock_reason=WALL if wall else MONOTONIC,
            survives_kill=True,
            survives_kill_reason="a grant is written to the journal before it is answered (workloads/zoo/server.py)",
        )

    def healthy(self, servers: Sequence[Server]) -> tuple[bool, str]:
        """It answers, and has written to its journal."""
        answers = ask_all(servers, self._hello)
        return all(isinstance(answer, dict) and answer["checked"] for answer in answers.values()), says(answers)

    def _hello(self, server: Server) -> dict[str, Any]:
        said = server.tcp(b'{"do": "hello"}\n', port=PORT, read_bytes=1, timeout_seconds=LOOK_SECONDS)
        answer = json.loads(said)
        if not isinstance(answer, dict) or "version" not in answer:
            raise AgentError(f"it said {said[:120]!r}")
        return answer

    def leadership(self, servers: Sequence[Server]) -> Leadership:
        """See `System.leadership`. A single server leads whether it answers or not."""
        seen = ask_all(servers, self._hello)
        return Leadership(servers[0].name, {name: str(said) for name, said in seen.items()})

    def version(self, server: Server) -> str:
        """See `System.version`."""
        return str(self._hello(server)["version"])

    def client_config(self, settings: Settings, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """See `System.client_config`."""
        return {"endpoints": [[name, PORT] for name in nodes]}

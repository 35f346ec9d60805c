"""What was found: each thing with its status, the reason and the remedy, and what follows for trials."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.runtime.choice import ORDER

Status = Literal["ok", "limited", "missing", "failed", "unknown"]

GIB = 1024**3
DISK_NEEDED, DISK_WISHED = 1 * GIB, 5 * GIB
MEMORY_NEEDED, MEMORY_WISHED = 1 * GIB, 3 * GIB
"""A trial with five contenders, three ZooKeeper servers and PostgreSQL takes 0.8 GiB (measured)."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    `needed` says whether trials need it. `status`: `ok` · `limited` (less of it: the detail says what is missing) ·
    `missing` (not the machine's fault: `fencepost images` gets it) · `failed` · `unknown` (couldn't be tried). `remedy`
    is empty when there is nothing to do. `runtime` is the one that it is about, None where it is about all.
    """

    name: str
    status: Status
    needed: bool
    detail: str
    remedy: str = ""
    runtime: str | None = None

    @property
    def lacking(self) -> bool:
        """Whether it keeps trials from running."""
        return self.needed and self.status not in ("ok", "limited")


@dataclass(frozen=True)
class Able:
    """Whether trials can run on one runtime. `only_images_missing`: nothing but images keeps them from it."""

    ok: bool
    only_images_missing: bool


@dataclass(frozen=True)
class Examination:
    """All findings. `ok` when everything that is needed on one of the runtimes is there."""

    findings: tuple[Finding, ...]

    def of(self, runtime: str | None) -> tuple[Finding, ...]:
        """The findings about one runtime alone; None: those about all of them."""
        return tuple(finding for finding in self.findings if finding.runtime == runtime)

    @property
    def runtimes(self) -> dict[str, Able]:
        """Those that were looked at, and whether trials can run on each."""
        names = [name for name in ORDER if self.of(name)]
        return {name: _able((*self.of(None), *self.of(name))) for name in names}

    @property
    def ok(self) -> bool:
        """Whether trials can run."""
        return any(able.ok for able in self.runtimes.values())

    @property
    def only_images_missing(self) -> bool:
        """Whether trials can't run, and nothing but images keeps them from it on one of the runtimes."""
        return not self.ok and any(able.only_images_missing for able in self.runtimes.values())

    def as_json(self) -> dict[str, Any]:
        """`{"ok", "only_images_missing", "runtimes": {name: {"ok", "only_images_missing"}}, "findings": [{"name",
        "status", "needed", "detail", "remedy", "runtime"}]}`."""
        return {
            "ok": self.ok,
            "only_images_missing": self.only_images_missing,
            "runtimes": {name: asdict(able) for name, able in self.runtimes.items()},
            "findings": [asdict(finding) for finding in self.findings],
        }


def untried(runtime: str) -> Finding:
    """What a node can do, where there is no image of one."""
    return Finding(
        "node",
        "unknown",
        True,
        "what a node can do here (partition, freeze, clock, …) is tried once the image node is there",
        runtime=runtime,
    )


def _able(findings: tuple[Finding, ...]) -> Able:
    lacking = [finding for finding in findings if finding.lacking]
    for_want_of_images = [f for f in lacking if f.status == "missing" or f == untried(f.runtime or "")]
    only_images = any(f.status == "missing" for f in lacking) and len(for_want_of_images) == len(lacking)
    return Able(not lacking, only_images)


def size(cores: int, memory: int, runtime: str | None) -> Finding:
    """Whether processors and memory (bytes) suffice."""
    told = f"{cores} core{'s' if cores > 1 else ''}, {memory / GIB:.1f} GiB of memory"
    if memory < MEMORY_NEEDED:
        remedy = f"give this machine {MEMORY_WISHED / GIB:.0f} GiB of memory"
        return Finding("size", "failed", True, told, remedy, runtime)
    if memory < MEMORY_WISHED or cores < 2:
        return Finding("size", "limited", True, told, "run trials one at a time (-j 1)", runtime)
    return Finding("size", "ok", True, told, runtime=runtime)


def disk(name: str, free: int, where: str, remedy: str, runtime: str | None = None) -> Finding:
    """Whether so many free bytes suffice."""
    told = f"{free / GIB:.1f} GiB free {where}"
    if free < DISK_NEEDED:
        return Finding(name, "failed", True, told, remedy, runtime)
    status: Status = "limited" if free < DISK_WISHED else "ok"
    return Finding(name, status, True, told, remedy if free < DISK_WISHED else "", runtime)

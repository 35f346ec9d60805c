"""What this machine can and can't do for trials: each thing tried, with the reason and the remedy where it fails."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from harness.doctor import places
from harness.doctor.findings import Examination, Finding, disk
from harness.runtime.base import Runtime

LOOKS = {"docker": places.docker, "local": places.machine}


def examine(
    say: Callable[[str], None] = lambda line: None,
    opened: Callable[[Runtime], None] = lambda runtime: None,
    only: str | None = None,
) -> Examination:
    """Looks at this machine, and at each runtime, or at one `only`. `say` gets a line before what takes a while.

    Every kind of fault is tried in a throwaway site, which is removed whatever happens. `opened` gets each runtime
    before anything is created in it, so that another thread can `sweep` it. Never raises for what is wrong with the
    machine: that becomes a finding.
    """
    python = Finding("python", "ok", True, f"{platform.python_implementation()} {platform.python_version()}")
    here = Path.cwd()
    found = [python, disk("disk (results)", shutil.disk_usage(here).free, f"at {here}", "remove old results")]
    for name, look in LOOKS.items():
        if only in (None, name):
            found += look(say, opened)
    return Examination(tuple(found))

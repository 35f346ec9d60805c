"""The processors on which clocks can be moved."""

from __future__ import annotations

import os
from typing import Dict, Type

from nemesis.agent.base import Refused
from nemesis.agent.clock.architecture import Architecture
from nemesis.agent.clock.x86_64 import X86

ARCHITECTURES: Dict[int, Type[Architecture]] = {X86.MACHINE: X86}


def architecture_of(machine: int) -> Type[Architecture]:
    """The architecture of an ELF image, by the number in its header. Refused when clocks can't be moved on it."""
    found = ARCHITECTURES.get(machine)
    if found is None:
        known = ", ".join(sorted(each.NAME for each in ARCHITECTURES.values()))
        raise Refused("clocks can't be moved on this architecture (%s), only on %s" % (os.uname().machine, known))
    return found

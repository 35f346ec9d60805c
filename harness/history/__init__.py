"""What happened in a trial, as data: reading histories, and pandas frames for one's own questions.

    from harness import history

    operations = history.load("results/my-trial")    # a DataFrame, one row for each operation
    grants = history.grants("results/my-trial")      # one row for each grant, with its intervals
    faults = history.faults("results/my-trial")      # one row for each fault

`read` gives the columnar `History` that the checkers work on. pandas is imported by these three alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.history.events import History, from_events
from harness.history.reader import read

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History", "faults", "from_events", "grants", "load", "read"]


def load(path: str | Path | History) -> pd.DataFrame:
    """A frame of operations; see `harness.history.frames.operations`."""
    from harness.history.frames import operations

    return operations(path if isinstance(path, History) else read(path))


def grants(path: str | Path | History) -> pd.DataFrame:
    """A frame of grants with their intervals; see `harness.history.frames.grants`."""
    from harness.history import frames

    return frames.grants(path if isinstance(path, History) else read(path))


def faults(path: str | Path | History) -> pd.DataFrame:
    """A frame of faults; see `harness.history.frames.faults`."""
    from harness.history import frames

    return frames.faults(path if isinstance(path, History) else read(path))

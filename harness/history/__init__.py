"""What happened in a trial, as data: reading histories, ours and those of others, and writing them for others.

`read` gives the columnar `History` that the checkers work on; `harness.frames` has pandas frames of it.
"""

from harness.history.building import from_events
from harness.history.events import History
from harness.history.reader import read

__all__ = ["History", "from_events", "read"]

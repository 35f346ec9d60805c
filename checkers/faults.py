"""faults: did every fault really happen, and was every one undone?

Skipped faults are listed in the stats and not counted. False when any other that the nemesis made was not `undone` by
the end; else unknown when one has no `landed` receipt, or when somebody other than the nemesis did something to a node;
else true. Where none was recorded, or all were skipped, it is true of nothing, and the note says so: a history that
others wrote tells nothing of its faults.
"""

from __future__ import annotations

from checkers import words
from checkers.findings import Finding, Verdict, Word
from checkers.intervals import Model
from harness.history.events import PAUSED, Fault


def check(model: Model) -> Verdict:
    """The verdict on the receipts; true where there were no faults, with a note."""
    faults = model.history.faults
    counted = [fault for fault in faults if not fault.skipped]
    outside = [_outside(fault) for fault in counted if fault.outside]
    left = [_not_undone(fault) for fault in counted if not fault.undone and not fault.outside]
    unproven = [_not_landed(fault) for fault in counted if not fault.landed]
    found = left + unproven + outside
    stats = {
        "faults": len(counted),
        "landed": sum(fault.landed for fault in counted),
        "undone": sum(fault.undone for fault in counted),
        "bit": sum(fault.bit is True for fault in counted),
        "missed": sum(fault.bit is False for fault in counted),
        "immune": sum(fault.bit == "immune" for fault in counted),
        "skipped": [fault.id for fault in faults if fault.skipped],
    }
    valid: Word = False if left else "unknown" if unproven or outside else True
    note = None if counted else "every fault was skipped" if faults else "no fault was recorded"
    return Verdict(valid, words.ordered(found), len(found), stats, note=note)


def _not_undone(fault: Fault) -> Finding:
    if fault.stop is None or fault.stop_line is None:
        text = f"{words.fault(fault)} was never stopped"
        return Finding("not-undone", None, (fault.start_line,), words.sentence(text), fault.start)
    text = f"{words.fault(fault)} was stopped {words.after(fault.stop, fault.start)}, without proof that it was undone"
    return Finding("not-undone", None, (fault.start_line, fault.stop_line), words.sentence(text), fault.stop)


def _not_landed(fault: Fault) -> Finding:
    return Finding(
        "not-landed",
        None,
        (fault.start_line,),
        words.sentence(f"{words.fault(fault)} started without proof that it took effect"),
        fault.start,
    )


#: What befell a node, by `what`; any other word is told as it stands.
_BEFELL = {"killed": "killed", "disconnected": "disconnected from its network", "oom": "out of memory"}


def _outside(fault: Fault) -> Finding:
    """Names the node, what befell it, and for how long."""
    what = fault.what or PAUSED
    named = [*fault.targets, *(f"contender {process}" for process in fault.processes)]
    on = ", ".join(named) or "a node that is not named"
    text = f"somebody other than the nemesis did this to {on}: {_BEFELL.get(what, what)}"
    if fault.stop is None or fault.stop_line is None:
        text += ", to the end of the history"
        return Finding("outside", None, (fault.start_line,), words.sentence(text), fault.start)
    text += f", for {words.span(fault.stop - fault.start)}"
    return Finding("outside", None, (fault.start_line, fault.stop_line), words.sentence(text), fault.stop)

"""The timeline of a trial as one SVG: a real time axis, a row for each contender, faults as bands, overlaps in red.

Every x is a percentage of the trial, so the drawing needs no script and no fixed width: zooming is nothing but a wider
element (`templates/report.js`), and text never stretches. What is drawn is capped, see `Selection`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from harness.report import files, words
from harness.report.story import FaultSpan, Found, Row, Story, finite
from harness.report.svg import join, tag

MARKS = 6000
"""At most so many operations are drawn one by one; the rest is summed up in bins."""
BINS = 400
OVERLAPS = 400
FLAGS = 300
"""At most so many findings have a flag on the timeline."""
LANES = 6
"""Faults at one time that get a labelled lane each."""
NOMINAL = 1000
"""Width in px for which labels are laid out where no script can do it."""

AXIS = 24
PHASE = 18
LANE = 20
BAR = 18
SERVER_ROW = 24


@dataclass(frozen=True)
class Selection:
    """What is drawn one by one. When a history has more than `MARKS` operations, those near findings come first.

    `windows` are the stretches (seconds) drawn in full; everywhere else the rows show shares and counts per bin.
    """

    operations: pd.DataFrame
    grants: pd.DataFrame
    marks: pd.DataFrame
    whole: bool
    windows: Sequence[tuple[float, float]] = ()
    findings: int = 0
    """How many findings lie in the windows."""


@dataclass(frozen=True)
class Label:
    """A name in the column left of the drawing; y is the middle of its line."""

    y: float
    text: str
    small: str | None = None
    kind: str = "row"


@dataclass
class Drawing:
    """The timeline: SVG elements and the labels of its rows. `height` in px."""

    height: float
    labels: list[Label] = field(default_factory=list)
    body: Markup = field(default_factory=Markup)
    overview: Markup = field(default_factory=Markup)
    note: str | None = None
    """What isn't drawn one by one, in words."""
    has: frozenset[str] = frozenset()
    """Which signs occur, for the legend."""


def select(story: Story, limit: int = MARKS) -> Selection:
    """Chooses what is drawn one by one."""
    operations, grants, marks = story.operations, story.grants, story.marks
    if len(operations) + len(grants) + len(marks) <= limit:
        return Selection(operations, grants, marks, whole=True)
    ends = operations["end"].fillna(operations["invoke"]).to_numpy()
    invokes = operations["invoke"].to_numpy()
    chosen = np.zeros(len(operations), dtype=bool)
    windows: list[tuple[float, float]] = []
    findings = 0
    margin = max(0.5, (story.meta.ttl or 0.0) / 2)
    for found in _in_turn(story.found):
        a, b = found.span
        window = (a - margin, b + margin)
        more = chosen | ((ends >= window[0]) & (invokes <= window[1]))
        if more.sum() > limit:
            continue  # a shorter one may still fit
        chosen, findings = more, findings + 1
        windows.append(window)
        if findings >= FLAGS:
            break
    windows = _merge(windows)

    def near(start: Any, end: Any) -> Any:
        inside = np.zeros(len(start), dtype=bool)
        for a, b in windows:
            inside |= (end >= a) & (start <= b)
        return inside

    times = marks["time"].to_numpy()
    return Selection(
        operations[chosen],
        grants[near(grants["invoke"].to_numpy(), grants["belief_end"].to_numpy())],
        marks[near(times, times)],
        whole=False,
        windows=windows,
        findings=findings,
    )


def draw(story: Story, limit: int = MARKS) -> Drawing:
    """The whole timeline."""
    return _Painter(story, select(story, limit)).drawing()


def _in_turn(found: Sequence[Found]) -> Iterable[Found]:
    """The first finding of each verdict, then the second of each, and so on."""
    return sorted(found, key=lambda each: each.number)


def _merge(windows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for a, b in sorted(windows):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return merged


def ticks(start: float, end: float, most: int = 12) -> list[float]:
    """Round instants for an axis: steps of 1, 2 or 5 times a power of ten.

    >>> ticks(0, 7, 8)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    rough = (end - start) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(start / step - 1e-9)
    return [index * step for index in range(first, math.floor(end / step + 1e-9) + 1)]


class _Painter:
    """Lays out the rows from top to bottom and paints them."""

    def __init__(self, story: Story, selection: Selection) -> None:
        self.story, self.selection = story, selection
        self.out: list[Markup] = []
        self.back: list[Markup] = []
        self.front: list[Markup] = []
        self.labels: list[Label] = []
        self.has: set[str] = set()
        self.row_of: dict[tuple[int, str], float] = {}
        self.node_row: dict[str, float] = {}
        self.writes = bool((story.operations["f"] == "write").any())
        self.height_of_row = 62.0 if self.writes else 38.0
        self.fault_y: dict[str, float] = {}
        self.stale = self._lines_of(("fenced", "damage"))
        self.said = self._said()

    def _lines_of(self, verdicts: Sequence[str]) -> dict[int, str]:
        """Line of the event that a finding is about (its last) -> the finding's kind."""
        return {found.events[-1].line: found.finding.kind for found in self.story.found if found.verdict in verdicts}

    def _said(self) -> dict[int, str]:
        """Line -> what the event gives as its error or reason, for the drawn ones that have any to give."""
        operations, marks = self.selection.operations, self.selection.marks
        unsure = operations[(operations["outcome"] != "ok") & (operations["end_line"] > 0)]
        raw = files.read_lines(self.story.path, [*unsure["end_line"].tolist(), *marks["line"].tolist()])
        said = {line: event.get("error") or event.get("reason") for line, event in raw.items()}
        return {line: str(text) for line, text in said.items() if text is not None}

    def _error(self, operation: Any) -> str:
        text = self.said.get(operation.end_line)
        return f"\n{text}" if text else ""

    # -- coordinates

    def x(self, time: float) -> str:
        return f"{100 * (time - self.story.start) / self.story.seconds:.5f}%"

    def width(self, start: float, end: float) -> str:
        return f"{max(0.0, 100 * (end - start) / self.story.seconds):.5f}%"

    def fits(self, start: float, end: float, text: str, per_letter: float = 6.6) -> dict[str, Any]:
        """Attributes of a text that is shown only while the bar from start to end is wide enough for it."""
        share = 100 * (end - start) / self.story.seconds
        need = 8 + per_letter * len(text)
        tight = share / 100 * NOMINAL < need
        return {
            "data_a": f"{100 * (start - self.story.start) / self.story.seconds:.5f}",
            "data_p": f"{share:.5f}",
            "data_n": round(need),
            "class_": "fit tight" if tight else "fit",
        }

    # -- the whole

    def drawing(self) -> Drawing:
        story = self.story
        y = float(AXIS)
        y = self._phases(y)
        y = self._fault_lanes(y)
        y = self._unsafe_lane(y)
        y = self._flag_lane(y)
        top = y = y + 6
        y = self._server_rows(y)
        y = self._contender_rows(y)
        bottom = y + 4
        self._fault_bands(top, bottom)
        self._overlap_bands(top, bottom)
        self._findings(top, bottom)
        axis = join(
            tag(
                "g",
                tag("line", x1=self.x(at), x2=self.x(at), y1=AXIS - 6, y2=bottom, class_="grid"),
                tag("text", f"{at:g}", x=self.x(at), y=AXIS - 9, class_="tick"),
            )
            for at in ticks(story.start, story.end)
        )
        self.labels.insert(0, Label(AXIS - 12, "seconds", kind="lane"))
        body = join(
            [
                tag("g", axis, class_="axis", data_y1=AXIS - 6, data_y2=bottom, data_ty=AXIS - 9),
                tag("g", join(self.back)),
                tag("g", join(self.out)),
                tag("g", join(self.front)),
            ]
        )
        return Drawing(bottom, self.labels, body, self._overview(), self._note(), frozenset(self.has))

    def _note(self) -> str | None:
        selection, story = self.selection, self.story
        if selection.whole:
            return None
        total = len(story.operations)
        text = f"This history has {words.count(total, 'operation')}, too many to draw one by one. "
        if selection.windows:
            covered = sum(b - a for a, b in selection.windows)
            text += (
                f"Drawn in full is what lies around {words.count(selection.findings, 'finding')} "
                f"({words.count(len(selection.operations), 'operation')} in {words.seconds(covered)}, on a white ground)."
            )
        else:
            text += "There is no finding to draw in full."
        bin_seconds = story.seconds / BINS
        return (
            text
            + f" Elsewhere each box stands for {words.seconds(bin_seconds)}: the darker, the longer the lock was held in it."
        )

    # -- lanes above the rows

    def _phases(self, y: float) -> float:
        phases = []
        for phase in self.story.trial.phases if self.story.trial else []:
            start = max(self.story.start, phase.start / 1e9)
            end = min(self.story.end, math.inf if phase.end is None else phase.end / 1e9)
            if end > start:
                phases.append((phase, start, end))
        if not phases:
            return y
        for index, (phase, start, end) in enumerate(phases):
            title = f"{phase.name}: {words.instant(start)} to {words.instant(end)} ({words.seconds(end - start)})"
            fits = self.fits(start, end, phase.name)
            fits["class_"] += " phase-name"
            self.out.append(
                tag(
                    "g",
                    tag("title", title),
                    tag(
                        "rect",
                        x=self.x(start),
                        width=self.width(start, end),
                        y=y + 2,
                        height=PHASE - 4,
                        class_=f"phase p{index % 2}",
                    ),
                    tag("text", phase.name, x=self.x(start), dx=5, y=y + 13, **fits),
                )
            )
        self.labels.append(Label(y + PHASE / 2, "phases", kind="lane"))
        return y + PHASE

    def _fault_text(self, fault: FaultSpan) -> str:
        target = f" {fault.target}" if fault.target else ""
        hit = ", ".join(fault.targets) or ", ".join(words.who(process) for process in fault.processes)
        arrow = f" → {hit}" if hit and hit != fault.target else ""
        receipts = "/".join(receipt for receipt in (fault.receipt, fault.stop_receipt) if receipt)
        return f"{fault.kind}{target}{arrow}" + (f" · {receipts}" if receipts else "")

    def _fault_title(self, fault: FaultSpan) -> str:
        stop = "until the end" if fault.stop is None else f"to {words.instant(fault.stop)}"
        lines = [
            f"fault {fault.id}: {self._fault_text(fault)}",
            f"{words.instant(fault.start)} {stop} ({words.seconds((fault.stop or self.story.end) - fault.start)})",
        ]
        if fault.processes:
            lines.append("hits " + words.listing([words.who(process) for process in fault.processes]))
        lines += [reason for reason in (fault.reason, fault.stop_reason) if reason]
        lines.append("line " + " and ".join(str(line) for line in (fault.line, fault.stop_line) if line))
        return "\n".join(lines)

    def _fault_lanes(self, y: float) -> float:
        faults = self.story.faults
        if not faults:
            return y
        self.has.add("fault")
        free: list[float] = []  # for each lane, the first percentage that is free
        for fault in faults:
            stop = self.story.end if fault.stop is None else fault.stop
            text = self._fault_text(fault)
            start_share = 100 * (fault.start - self.story.start) / self.story.seconds
            share = 100 * (stop - fault.start) / self.story.seconds
            need = 100 * (12 + 6.3 * len(text)) / 780
            # A label may stand right of its bar, or left of it where the drawing ends.
            before = share < need and start_share + need > 100
            left = start_share - need if before else start_share
            right = start_share + share if before else start_share + max(share, need)
            lane = next((index for index, end in enumerate(free) if end <= left), len(free))
            if lane == len(free):
                free.append(0.0)
            free[lane] = right
            if lane >= LANES:
                lane = LANES - 1
                text = ""
            at = y + lane * LANE
            self.fault_y[fault.id] = at + LANE / 2
            state = "skipped" if fault.receipt == "skipped" else "landed" if fault.receipt == "landed" else "unproven"
            anchor: dict[str, Any]
            if before:
                anchor = {"x": self.x(fault.start), "dx": -4, "text_anchor": "end"}
            else:
                anchor = {"x": self.x(fault.start), "dx": 6 if share else 8}
            self.out.append(
                tag(
                    "g",
                    tag("title", self._fault_title(fault)),
                    tag(
                        "rect",
                        x=self.x(fault.start),
                        width=self.width(fault.start, stop),
                        y=at + 2,
                        height=LANE - 4,
                        rx=3,
                        class_=f"fault {state}",
                    ),
                    tag("text", text, y=at + LANE / 2 + 4, class_="fault-name", **anchor) if text else None,
                    class_="hit",
                )
            )
        lanes = min(len(free), LANES)
        self.labels.append(Label(y + LANE / 2, "faults", kind="lane"))
        return y + lanes * LANE

    def _unsafe_lane(self, y: float) -> float:
        overlaps = self.story.overlaps[:OVERLAPS]
        if not overlaps:
            return y
        self.has.add("overlap")
        occupied = -1.0
        for overlap in overlaps:
            length = overlap.end - overlap.start
            text = words.seconds(length)
            share = 100 * length / self.story.seconds
            at = 100 * (overlap.start - self.story.start) / self.story.seconds
            need = 100 * (10 + 6.6 * len(text)) / 780
            beside = share < need
            before = beside and at + share + need > 100
            left, right = (at - need, at + share) if before else (at, at + share + (need if beside else 0))
            label: Markup | None = None
            if left >= occupied:
                occupied = right
                if before:
                    label = tag(
                        "text", text, x=self.x(overlap.start), dx=-4, y=y + 14, class_="unsafe-out", text_anchor="end"
                    )
                elif beside:
                    label = tag("text", text, x=self.x(overlap.end), dx=4, y=y + 14, class_="unsafe-out")
                else:
                    label = tag("text", text, x=self.x(overlap.start), dx=5, y=y + 14, class_="unsafe-in")
            who = words.listing([words.who(process) for process in overlap.processes])
            title = (
                f"{who} believe at once that they hold {overlap.lock}\n"
                f"{words.instant(overlap.start)} to {words.instant(overlap.end)} ({text})"
            )
            self.out.append(
                tag(
                    "g",
                    tag("title", title),
                    tag(
                        "rect",
                        x=self.x(overlap.start),
                        width=self.width(overlap.start, overlap.end),
                        y=y + 2,
                        height=LANE - 4,
                        rx=2,
                        class_="unsafe",
                    ),
                    label,
                    class_="hit",
                )
            )
        self.labels.append(Label(y + LANE / 2, "two believers", kind="lane bad"))
        return y + LANE

    def _flag_lane(self, y: float) -> float:
        flags = [found for found in self.story.found if found.number <= FLAGS]
        if not flags:
            return y
        self.has.add("flag")
        for found in sorted(flags, key=lambda each: each.span[1]):
            at = found.span[1]
            self.out.append(
                tag(
                    "a",
                    tag("title", f"{found.verdict} {found.number} ({found.finding.kind})\n{found.finding.text}"),
                    tag("use", href="#flag", x=self.x(at), y=y + 3),
                    href=f"#{found.anchor}",
                    class_="hit flag",
                )
            )
        self.labels.append(Label(y + 10, "findings", kind="lane bad"))
        return y + LANE

    # -- rows

    def _server_rows(self, y: float) -> float:
        """A thin row for each server, and for any other node that a fault hit."""
        trial = self.story.trial
        mine = {row.node for row in self.story.rows if row.node}
        names = [name for name, node in trial.nodes.items() if node.role != "contender"] if trial else []
        for fault in self.story.faults:
            names += [target for target in fault.targets if target not in names]
        owners = {row.node: row for row in self.story.rows if row.node}
        processes = {process for fault in self.story.faults for process in fault.processes}
        shown = [name for name in names if name not in mine and name not in owners]
        if trial is None or not mine:
            # Without a trial.json nobody says which node a contender sits on; a node hit along with contenders is theirs.
            theirs = {target for fault in self.story.faults if fault.processes for target in fault.targets}
            shown = [name for name in shown if name not in theirs or not processes]
        for name in shown:
            self.node_row[name] = y
            role = trial.nodes[name].role if trial and name in trial.nodes else None
            self.labels.append(Label(y + SERVER_ROW / 2, name, role if role != name else None, "server"))
            self.back.append(tag("rect", x="0", width="100%", y=y, height=SERVER_ROW - 3, class_="lane-back"))
            for fault in self.story.faults:
                if name in fault.targets:
                    self._hit(fault, y + 3, SERVER_ROW - 9)
            y += SERVER_ROW
        return y + 8 if shown else y

    def _hit(self, fault: FaultSpan, y: float, height: float) -> None:
        stop = self.story.end if fault.stop is None else fault.stop
        self.out.append(
            tag(
                "g",
                tag("title", self._fault_title(fault)),
                tag(
                    "rect",
                    x=self.x(fault.start),
                    width=self.width(fault.start, stop),
                    y=y,
                    height=height,
                    rx=2,
                    class_="struck" + (" skipped" if fault.receipt == "skipped" else ""),
                ),
                class_="hit",
            )
        )

    def _contender_rows(self, y: float) -> float:
        story = self.story
        several = len({row.lock for row in story.rows}) > 1
        lock: str | None = None
        for row in story.rows:
            if several and row.lock != lock:
                lock = row.lock
                self.labels.append(Label(y + 10, f"lock {lock}", kind="lock"))
                y += 22
            self.row_of[row.process, row.lock] = y
            small = " · ".join(
                part
                for part in (row.node, None if row.guarded is None else "guarded" if row.guarded else "naive")
                if part
            )
            self.labels.append(Label(y + (16 if small else 21), f"contender {row.process}", small or None))
            if self.writes:
                self.labels.append(Label(y + 40, "unfenced", kind="track"))
                self.labels.append(Label(y + 51, "fenced", kind="track"))
            self.back.append(
                tag("rect", x="0", width="100%", y=y + 1, height=self.height_of_row - 5, class_="lane-back")
            )
            self._contender(row, y)
            y += self.height_of_row
        return y

    def _contender(self, row: Row, y: float) -> None:
        for fault in self.story.faults:
            if row.process in fault.processes or (row.node and row.node in fault.targets):
                self._hit(fault, y + 1, self.height_of_row - 5)
        if not self.selection.whole:
            self._density(row, y)
        self._attempts(row, y)
        self._holds(row, y)
        if self.writes:
            self._written(row, y)
        self._marked(row, y)

    def _mine(self, frame: pd.DataFrame, row: Row) -> pd.DataFrame:
        return frame[(frame["process"] == row.process) & (frame["lock"] == row.lock)]

    def _attempts(self, row: Row, y: float) -> None:
        acquires = self._mine(self.selection.operations, row)
        acquires = acquires[acquires["f"] == "acquire"]
        for each in records(acquires):
            self.has.add("pending")
            end = finite(each.end, self.story.end)
            outcome = {"ok": "granted", "fail": "not granted", "info": "outcome unknown"}[each.outcome]
            title = (
                f"{words.who(row.process)} asks for the lock: {outcome}\n"
                f"{words.instant(each.invoke)} to {words.instant(end)} (waits {words.seconds(end - each.invoke)})\n"
                f"{_lines(each)}{self._error(each)}"
            )
            middle = y + 5 + BAR / 2
            parts: list[Markup | None] = [
                tag("title", title),
                tag(
                    "line", x1=self.x(each.invoke), x2=self.x(end), y1=middle, y2=middle, class_=f"wait {each.outcome}"
                ),
                tag(
                    "line", x1=self.x(each.invoke), x2=self.x(each.invoke), y1=middle - 4, y2=middle + 4, class_="wait"
                ),
            ]
            if each.outcome != "ok":
                self.has.add("wait-" + each.outcome)
                parts.append(tag("use", href=f"#end-{each.outcome}", x=self.x(end), y=middle))
            self.out.append(tag("g", *parts, class_="hit"))

    def _holds(self, row: Row, y: float) -> None:
        for each in records(self._mine(self.selection.grants, row)):
            self.has.add("belief")
            bar = y + 5
            core = finite(each.core_end, each.ok)
            core = min(core, self.story.end)
            promised = each.promise
            token = "" if pd.isna(each.token) else str(each.token)
            title = [
                f"{words.who(row.process)} holds" + (f", token {token}" if token else ", without a token"),
                f"granted {words.instant(each.ok)}, asked for {words.instant(each.invoke)}",
                f"believes for {words.seconds(each.belief_end - each.ok)}, until {words.instant(each.belief_end)}: {each.ended_by}",
            ]
            if not math.isnan(promised):
                title.append("lease runs until " + ("its release" if math.isinf(promised) else words.instant(promised)))
            if not math.isnan(each.core_end) and math.isfinite(each.core_end):
                title.append(f"held for certain until {words.instant(each.core_end)}")
            if each.late:
                title.append("late: its lease had run out before the grant arrived")
            title.append(f"lines {each.line} and {each.ok_line}")
            parts: list[Markup | None] = [tag("title", "\n".join(title))]
            if core > each.belief_end:
                self.has.add("promise")
                parts.append(
                    tag(
                        "rect",
                        x=self.x(each.ok),
                        width=self.width(each.ok, core),
                        y=bar,
                        height=BAR,
                        rx=3,
                        class_="promise",
                    )
                )
            beyond = max(each.ok, core)
            known = not math.isnan(each.core_end)
            parts.append(
                tag(
                    "rect",
                    x=self.x(each.ok),
                    width=self.width(each.ok, each.belief_end),
                    y=bar,
                    height=BAR,
                    rx=3,
                    class_="belief",
                )
            )
            if known and each.belief_end > beyond + 1e-6:
                self.has.add("beyond")
                parts.append(
                    tag(
                        "rect",
                        x=self.x(beyond),
                        width=self.width(beyond, each.belief_end),
                        y=bar,
                        height=BAR,
                        rx=3,
                        class_="beyond",
                    )
                )
            if token:
                parts.append(
                    tag(
                        "text",
                        token,
                        x=self.x(each.ok),
                        dx=4,
                        y=bar + 13,
                        **self.fits(each.ok, each.belief_end, token),
                    )
                )
            self.out.append(tag("g", *parts, class_="hit"))
        for overlap in self.story.overlaps[:OVERLAPS]:
            if overlap.lock == row.lock and row.process in overlap.processes:
                self.front.append(
                    tag(
                        "rect",
                        x=self.x(overlap.start),
                        width=self.width(overlap.start, overlap.end),
                        y=y + 4,
                        height=BAR + 2,
                        class_="unsafe-row",
                    )
                )
        renews = self._mine(self.selection.operations, row)
        for each in records(renews[renews["f"].isin(["renew", "release"])]):
            if each.f == "release" and each.outcome == "ok":
                continue  # the end of the bar says it
            end = finite(each.end, each.invoke)
            name = each.f if each.outcome == "ok" else f"{each.f}-{each.outcome}"
            self.has.add(name)
            said = {"ok": "succeeds", "fail": "fails", "info": "outcome unknown"}[each.outcome]
            said_of_it = f"{words.who(row.process)}: {each.f} {said}"
            if each.held == 0:
                said_of_it += ", the service says: not held"
            said_of_it += f"\nsent {words.instant(each.invoke)}, took {words.seconds(end - each.invoke)}\n{_lines(each)}{self._error(each)}"
            self.out.append(
                tag(
                    "g",
                    tag("title", said_of_it),
                    tag(
                        "use",
                        href=f"#op-{each.outcome}",
                        x=self.x(end if each.outcome == "fail" else each.invoke),
                        y=y + 27,
                    ),
                    class_="hit",
                )
            )

    def _written(self, row: Row, y: float) -> None:
        writes = self._mine(self.selection.operations, row)
        for each in records(writes[writes["f"] == "write"]):
            track = y + (45 if each.resource == "fenced" else 34)
            end = finite(each.end, each.invoke)
            bad = self.stale.get(each.end_line)
            name = "write-bad" if bad else f"write-{each.outcome}"
            self.has.add(name)
            said = {"ok": "accepted", "fail": "refused", "info": "outcome unknown"}[each.outcome]
            facts = [
                f"{key} {getattr(each, key)}"
                for key in ("token", "seq", "read", "version")
                if not pd.isna(getattr(each, key))
            ]
            title = (
                f"{words.who(row.process)} writes to the {each.resource} resource: {said}"
                + (f" ({bad})" if bad else "")
                + f"\n{', '.join(facts)}\n{words.instant(each.invoke)} to {words.instant(end)}\n{_lines(each)}{self._error(each)}"
            )
            self.out.append(
                tag("g", tag("title", title), tag("use", href=f"#{name}", x=self.x(end), y=track), class_="hit")
            )

    def _marked(self, row: Row, y: float) -> None:
        marks = self.selection.marks
        marks = marks[(marks["process"] == row.process) & ((marks["lock"] == row.lock) | (marks["f"] == "crash"))]
        for each in records(marks):
            self.has.add(each.f)
            what = "crashed" if each.f == "crash" else "no longer believes that it holds"
            reason = self.said.get(each.line)
            what += f": {reason}" if reason else ""
            title = f"{words.who(row.process)} {what}\n{words.instant(each.time)}\nline {each.line}"
            self.front.append(
                tag("g", tag("title", title), tag("use", href=f"#{each.f}", x=self.x(each.time), y=y + 5), class_="hit")
            )

    def _density(self, row: Row, y: float) -> None:
        """Share of the time held and counts for each bin of a row."""
        self.has.add("density")
        story = self.story
        edges = np.linspace(story.start, story.end, BINS + 1)
        grants = self._mine(story.grants, row)
        held = _coverage(grants["ok"].to_numpy(), grants["belief_end"].to_numpy(), edges)
        operations = self._mine(story.operations, row)
        at = operations["end"].fillna(operations["invoke"]).to_numpy()
        where = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, BINS - 1)
        kinds = operations["f"].astype(str).to_numpy() + " " + operations["outcome"].astype(str).to_numpy()
        counts = pd.crosstab(where, kinds) if len(where) else pd.DataFrame()
        windows = self.selection.windows
        for index in range(BINS):
            a, b = float(edges[index]), float(edges[index + 1])
            some = counts.loc[index] if index in counts.index else None
            if held[index] <= 0 and some is None:
                continue
            if any(start <= a and b <= end for start, end in windows):
                continue
            share = held[index]
            title = f"{words.who(row.process)}, {words.instant(a)} to {words.instant(b)}\nheld {words.share(share)} of the time"
            if some is not None:
                title += "\n" + ", ".join(f"{int(number)} {kind}" for kind, number in some.items() if number)
            self.back.append(
                tag(
                    "g",
                    tag("title", title),
                    tag("rect", x=self.x(a), width=self.width(a, b), y=y + 5, height=BAR, class_="bin-back"),
                    tag(
                        "rect",
                        x=self.x(a),
                        width=self.width(a, b),
                        y=y + 5,
                        height=BAR,
                        class_="bin",
                        fill_opacity=round(0.1 + 0.8 * float(share), 3) if share else 0,
                    ),
                    class_="hit",
                )
            )

    # -- over all rows

    def _fault_bands(self, top: float, bottom: float) -> None:
        bands = []
        for fault in self.story.faults:
            if fault.receipt == "skipped":
                continue
            stop = self.story.end if fault.stop is None else fault.stop
            bands.append(
                tag(
                    "rect",
                    x=self.x(fault.start),
                    width=self.width(fault.start, stop),
                    y=top - 4,
                    height=bottom - top + 4,
                    class_="band",
                )
            )
        self.back[:0] = []
        self.back += bands

    def _overlap_bands(self, top: float, bottom: float) -> None:
        """A red veil from the first to the last of the rows that believe at once."""
        for overlap in self.story.overlaps[:OVERLAPS]:
            rows = [
                self.row_of[process, overlap.lock]
                for process in overlap.processes
                if (process, overlap.lock) in self.row_of
            ]
            if len(rows) < 2:
                continue
            self.back.append(
                tag(
                    "rect",
                    x=self.x(overlap.start),
                    width=self.width(overlap.start, overlap.end),
                    y=min(rows) + 4,
                    height=max(rows) - min(rows) + BAR + 2,
                    class_="veil",
                )
            )

    def _findings(self, top: float, bottom: float) -> None:
        """For each finding its events as numbered pins, hidden until the page points at it (`:target`)."""
        for found in self.story.found:
            if found.number > FLAGS:
                continue
            a, b = found.span
            parts: list[Markup] = []
            for number, event in enumerate(found.events, 1):
                y = self._place(event.process, event.lock, event.keys, top)
                parts.append(
                    tag("line", x1=self.x(event.time), x2=self.x(event.time), y1=top - 4, y2=bottom, class_="pin-line")
                )
                parts.append(tag("circle", cx=self.x(event.time), cy=y, r=8, class_="pin"))
                parts.append(tag("text", str(number), x=self.x(event.time), y=y + 4, class_="pin-text"))
            self.front.append(
                tag("g", *parts, id=f"at-{found.anchor}", class_="finding", data_a=repr(a), data_b=repr(b))
            )

    def _place(self, process: int | str, lock: str | None, keys: Any, top: float) -> float:
        if isinstance(process, int):
            y = self.row_of.get((process, lock or ""))
            if y is None:
                y = next((each for (who, _), each in self.row_of.items() if who == process), top)
            if keys.get("f") == "write" and self.writes:
                return y + (49 if keys.get("resource") == "fenced" else 38)
            return y + 5 + BAR / 2
        return self.fault_y.get(str(keys.get("id")), top)

    # -- the small map above

    def _overview(self) -> Markup:
        """The whole trial on 34 px: who believes, where faults lie, where two believe. Never zoomed."""
        story = self.story
        rows = [(row.process, row.lock) for row in story.rows]
        step = 26 / max(1, len(rows))
        out: list[Markup] = []
        for fault in story.faults:
            stop = story.end if fault.stop is None else fault.stop
            out.append(
                tag(
                    "rect",
                    x=self.x(fault.start),
                    width=self.width(fault.start, stop),
                    y=0,
                    height=34,
                    class_="band strong",
                )
            )
        edges = np.linspace(story.start, story.end, 601)
        for index, (process, lock) in enumerate(rows):
            grants = story.grants[(story.grants["process"] == process) & (story.grants["lock"] == lock)]
            held = _coverage(grants["ok"].to_numpy(), grants["belief_end"].to_numpy(), edges) >= 0.5
            change = np.flatnonzero(np.diff(np.concatenate([[0], held.astype(int), [0]])))
            for start, end in zip(change[::2], change[1::2], strict=True):
                a, b = float(edges[start]), float(edges[end])
                out.append(
                    tag(
                        "rect",
                        x=self.x(a),
                        width=self.width(a, b),
                        y=round(4 + index * step, 2),
                        height=round(max(1.0, step - 0.8), 2),
                        class_="belief",
                    )
                )
        for overlap in story.overlaps[:OVERLAPS]:
            out.append(
                tag(
                    "rect",
                    x=self.x(overlap.start),
                    width=self.width(overlap.start, overlap.end),
                    y=0,
                    height=34,
                    class_="unsafe",
                )
            )
        return join(out)


def records(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame as named tuples, whose values have the types that `Story` gives for their columns."""
    return iter(frame.itertuples(index=False))


def _lines(operation: Any) -> str:
    return f"line {operation.line}" + (f" and {operation.end_line}" if operation.end_line else "")


def _coverage(starts: Any, ends: Any, edges: Any) -> Any:
    """For each bin the share of it that lies in the (disjoint) intervals; a difference of two cumulative lengths."""
    if not len(starts):
        return np.zeros(len(edges) - 1)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum(ends[order], starts[order])
    lengths = np.concatenate([[0.0], np.cumsum(ends - starts)])
    at = np.searchsorted(starts, edges, side="right")
    covered = lengths[at]
    inside = at > 0
    covered[inside] -= np.maximum(0.0, ends[at[inside] - 1] - edges[inside])
    return np.clip(np.diff(covered) / np.diff(edges), 0.0, 1.0)

"""The timeline of a trial as one SVG: a real time axis, a row for each contender, faults as bands, overlaps in red.

Every x is a percentage of the trial, so the drawing needs no script and no fixed width: zooming is nothing but a wider
element (`templates/report.js`), and text never stretches. What is drawn one by one is capped, see `selection`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from harness.report import words
from harness.report.canvas import BAR, Canvas, Label, hit, ticks
from harness.report.rows import BINS, RowPainter, track
from harness.report.selection import FINDINGS, MARKS, Selection, coverage, select
from harness.report.story import FaultSpan, Found, Overlap, Story
from harness.report.svg import join, tag

OVERLAPS = 400
"""At most so many overlaps are drawn, the longest."""
LANES = 8
"""Faults at one time that get a lane each; more share the last."""
NAMED = 12
"""Up to so many faults are named beside their bars, however short those are."""
AXIS = 24
PHASE = 18
LANE = 20
SERVER_ROW = 24
OVERVIEW = 34


@dataclass(frozen=True)
class Drawing:
    """The timeline: SVG elements and the labels of its rows. `height` in px."""

    height: float
    labels: Sequence[Label]
    body: Markup
    overview: Markup
    note: str | None
    """What isn't drawn one by one, in words."""
    has: frozenset[str]
    """Which signs occur, for the legend."""


def draw(story: Story, limit: int = MARKS) -> Drawing:
    """The whole timeline; at most `limit` operations are drawn one by one."""
    return _Painter(story, select(story, limit)).drawing()


class _Painter:
    """Lays out lanes and rows from top to bottom and paints them; every method that takes a `y` returns the next."""

    def __init__(self, story: Story, selection: Selection) -> None:
        self.story, self.selection = story, selection
        self.canvas = Canvas(story.start, story.end)
        self.rows = RowPainter(story, selection, self.canvas)
        longest = sorted(story.overlaps, key=lambda overlap: overlap.start - overlap.end)[:OVERLAPS]
        self.overlaps = sorted(longest, key=lambda overlap: (overlap.start, overlap.lock))
        self.row_y: dict[tuple[int, str], float] = {}
        self.fault_y: dict[str, float] = {}

    def drawing(self) -> Drawing:
        """Everything, once."""
        canvas = self.canvas
        y = self._fault_lanes(self._phases(AXIS))
        y = self._flags(self._unsafe(y)) + 6
        top = y
        bottom = self._contenders(self._servers(y))
        self._bands(top - 4, bottom)
        for found in self.story.found:
            if found.number <= FINDINGS:
                self._pins(found, top - 4, bottom)
        axis = join(
            tag(
                "g",
                tag("line", x1=canvas.x(at), x2=canvas.x(at), y1=AXIS - 6, y2=bottom, class_="grid"),
                tag("text", f"{at:g}", x=canvas.x(at), y=AXIS - 9, class_="tick plot-tick"),
            )
            for at in ticks(self.story.start, self.story.end)
        )
        layers = [
            tag("g", axis, class_="axis", data_y1=AXIS - 6, data_y2=bottom, data_ty=AXIS - 9),
            *(tag("g", join(layer)) for layer in (canvas.back, canvas.middle, canvas.front)),
        ]
        labels = [Label(AXIS - 13, "seconds", kind="lane"), *canvas.labels]
        return Drawing(bottom, labels, join(layers), self._overview(), self._note(), frozenset(canvas.has))

    def _note(self) -> str | None:
        selection, story = self.selection, self.story
        said: list[str] = []
        if not selection.whole:
            said.append(
                f"This history has {words.count(len(story.operations), 'operation')}, too many to draw one by one."
            )
            if selection.windows:
                covered = sum(b - a for a, b in selection.windows)
                said.append(
                    f"Drawn in full is what lies around {words.count(selection.findings, 'finding')}: "
                    f"{words.count(len(selection.operations), 'operation')} in {words.seconds(covered)}."
                )
            box = words.seconds(story.seconds / BINS)
            said.append(f"Elsewhere each box stands for {box}: the darker, the longer it was held.")
        if len(story.overlaps) > len(self.overlaps):
            said.append(f"Of {len(story.overlaps):,} overlaps the {len(self.overlaps)} longest are drawn.")
        more = {found.verdict: found.number for found in story.found if found.number > FINDINGS}
        if more:
            said.append(f"Flags and pins are for the first {FINDINGS} findings of {words.listing(list(more))}.")
        return " ".join(said) or None

    # -- lanes above the rows

    def _phases(self, y: float) -> float:
        canvas, phases = self.canvas, []
        for phase in self.story.trial.phases if self.story.trial else []:
            start = max(self.story.start, phase.start / 1e9)
            end = min(self.story.end, math.inf if phase.end is None else phase.end / 1e9)
            if end > start:
                phases.append((phase.name, start, end))
        if not phases:
            return y
        for index, (name, start, end) in enumerate(phases):
            title = f"{name}\n{words.instant(start)} to {words.instant(end)} ({words.seconds(end - start)})"
            bar = canvas.rect(start, end, y + 2, PHASE - 4, f"phase p{index % 2}")
            canvas.middle.append(hit(title, bar, canvas.inside(start, end, y + 13, name, "phase-name", 6.2)))
        canvas.labels.append(Label(y + PHASE / 2, "phases", kind="lane"))
        return y + PHASE

    def _fault_lanes(self, y: float) -> float:
        canvas, faults = self.canvas, self.story.faults
        if not faults:
            return y
        canvas.has.add("fault")
        many = len(faults) > NAMED  # then a name shows only where zooming makes room for it in its bar
        free: list[float] = []  # for each lane, the first percentage that is free
        for fault in faults:
            stop = self._stop(fault)
            text = _fault_texts(fault)[0]
            start_share, share = canvas.share(fault.start - self.story.start), canvas.share(stop - fault.start)
            # A label that is longer than its bar stands beside it, to the right or to the left, and is shortened when
            # neither side has room. The tooltip says all of it.
            side, need = "in", 0.0
            if not many:
                text, side, need = self._fitted(_fault_texts(fault), start_share, share)
            left = start_share - (need if side == "left" else 0.0)
            right = start_share + share + (need if side == "right" else 0.0)
            lane = next((index for index, end in enumerate(free) if end <= left), min(len(free), LANES - 1))
            if lane == len(free):
                free.append(0.0)
            free[lane] = max(free[lane], right)
            at = y + lane * LANE
            self.fault_y[fault.id] = at + LANE / 2
            state = {"landed": "landed", "skipped": "skipped"}.get(fault.receipt or "", "unproven")
            if side == "left":
                name = tag(
                    "text", text, x=canvas.x(fault.start), dx=-4, y=at + 14, class_="fault-name", text_anchor="end"
                )
            elif side == "right":
                name = tag("text", text, x=canvas.x(stop), dx=4, y=at + 14, class_="fault-name")
            else:
                name = canvas.inside(fault.start, stop, at + 14, text, "fault-name", keep=not many)
            bar = canvas.rect(fault.start, stop, at + 2, LANE - 4, f"fault {state}", rx=3)
            canvas.middle.append(hit(self._fault_title(fault), bar, name))
        canvas.labels.append(Label(y + LANE / 2, "faults", kind="lane"))
        return y + len(free) * LANE

    def _fitted(self, texts: Sequence[str], start: float, share: float) -> tuple[str, str, float]:
        """The longest of these texts that has room in a bar or beside it: (text, in, right or left, its width).

        `start`, `share` and the width are in per cent of the drawing. The last text stands somewhere whatever happens.
        """
        for text in texts:
            need = self.canvas.px(12 + 6.4 * len(text))
            if share >= need:
                return text, "in", need
            if start + share + need <= 100:
                return text, "right", need
            if start >= need:
                return text, "left", need
        return text, "right" if start + share < 50 else "left", need

    def _unsafe(self, y: float) -> float:
        """The lane of overlaps; those that follow one another closely share one label, their sum."""
        canvas, overlaps = self.canvas, self.overlaps
        if not overlaps:
            return y
        canvas.has.add("overlap")
        clusters: list[list[Overlap]] = []
        for overlap in overlaps:
            room = canvas.px(12)
            if clusters and canvas.share(overlap.start - max(each.end for each in clusters[-1])) < room:
                clusters[-1].append(overlap)
            else:
                clusters.append([overlap])
            who = words.listing([words.who(process) for process in overlap.processes])
            title = (
                f"{who} believe at once that they hold {overlap.lock!r}\n{words.instant(overlap.start)} to "
                f"{words.instant(overlap.end)} ({words.seconds(overlap.end - overlap.start)})"
            )
            canvas.middle.append(hit(title, canvas.rect(overlap.start, overlap.end, y + 2, LANE - 4, "unsafe", rx=2)))
        occupied = -1.0
        starts = [canvas.share(cluster[0].start - self.story.start) for cluster in clusters] + [200.0]
        for index, cluster in enumerate(clusters):
            start, end = cluster[0].start, max(each.end for each in cluster)
            text = words.seconds(sum(each.end - each.start for each in cluster))
            need = canvas.px(10 + 7 * len(text))
            left, right = starts[index], starts[index] + canvas.share(end - start)
            if len(cluster) == 1 and right - left >= need:
                label = tag("text", text, x=canvas.x(start), dx=6, y=y + 14, class_="unsafe-in")
                occupied = right
            elif right + need <= min(100.0, starts[index + 1]):
                label = tag("text", text, x=canvas.x(end), dx=4, y=y + 14, class_="unsafe-out")
                occupied = right + need
            elif left - need >= occupied and left - need >= 0:
                label = tag("text", text, x=canvas.x(start), dx=-4, y=y + 14, class_="unsafe-out", text_anchor="end")
                occupied = right
            else:
                occupied = right
                continue
            canvas.middle.append(label)
        canvas.labels.append(Label(y + LANE / 2, "two believers", kind="alarm"))
        return y + LANE

    def _flags(self, y: float) -> float:
        canvas = self.canvas
        flagged = sorted((found for found in self.story.found if found.number <= FINDINGS), key=lambda f: f.span[1])
        if not flagged:
            return y
        canvas.has.add("flag")
        for found in flagged:
            title = f"{found.verdict} {found.number}: {found.finding.kind}\n{found.finding.text}"
            flag = canvas.use("flag", found.span[1], y + 3)
            canvas.middle.append(tag("a", tag("title", title), flag, href=f"#{found.anchor}", class_="hit flag"))
        canvas.labels.append(Label(y + 10, "findings", kind="alarm"))
        return y + LANE

    # -- rows

    def _servers(self, y: float) -> float:
        """A thin row for each server, or other node without a contender, that a fault hit."""
        canvas, trial = self.canvas, self.story.trial
        theirs = {row.node for row in self.story.rows if row.node}
        if not theirs:
            # Without a trial.json nobody says which node is whose; nodes hit along with contenders are theirs.
            theirs = {target for fault in self.story.faults if fault.processes for target in fault.targets}
        hit_nodes = dict.fromkeys(target for fault in self.story.faults for target in fault.targets)
        known = list(trial.nodes) if trial else []
        shown = sorted(
            (name for name in hit_nodes if name not in theirs),
            key=lambda name: (known.index(name) if name in known else len(known), name),
        )
        for name in shown:
            role = trial.nodes[name].role if trial and name in trial.nodes else None
            canvas.labels.append(Label(y + SERVER_ROW / 2, name, role if role != name else None, "server"))
            canvas.back.append(tag("rect", x="0", width="100%", y=y, height=SERVER_ROW - 3, class_="lane-back"))
            for fault in self.story.faults:
                if name in fault.targets:
                    self._struck(fault, y + 3, SERVER_ROW - 9)
            y += SERVER_ROW
        return y + 8 if shown else y

    def _contenders(self, y: float) -> float:
        canvas = self.canvas
        several = len({row.lock for row in self.story.rows}) > 1
        lock: str | None = None
        for row in self.story.rows:
            if several and row.lock != lock:
                lock = row.lock
                canvas.labels.append(Label(y + 11, f"lock {lock!r}", kind="lock"))
                y += 22
            height = self.rows.height(row)
            self.row_y[row.process, row.lock] = y
            small = " · ".join(part for part in (row.node, row.kind) if part)
            canvas.labels.append(Label(y + (14 if small else 19), words.who(row.process), small or None))
            if self.rows.writes(row):
                canvas.labels.append(Label(track(y, "unfenced") + 3.5, "unfenced", kind="track"))
                canvas.labels.append(Label(track(y, "fenced") + 3.5, "fenced", kind="track"))
            canvas.back.append(tag("rect", x="0", width="100%", y=y + 1, height=height - 5, class_="lane-back"))
            for fault in self.story.faults:
                if row.process in fault.processes or (row.node and row.node in fault.targets):
                    self._struck(fault, y + 1, height - 5)
            self.rows.paint(row, y)
            y += height
        for overlap in self.overlaps:
            for process in overlap.processes:
                at = self.row_y[process, overlap.lock]
                canvas.middle.append(canvas.rect(overlap.start, overlap.end, at + 4, BAR + 2, "unsafe-row"))
        return y

    def _struck(self, fault: FaultSpan, y: float, height: float) -> None:
        if fault.receipt != "skipped":
            bar = self.canvas.rect(fault.start, self._stop(fault), y, height, "struck", rx=2)
            self.canvas.middle.append(hit(self._fault_title(fault), bar))

    def _stop(self, fault: FaultSpan) -> float:
        return self.story.end if fault.stop is None else fault.stop

    def _fault_title(self, fault: FaultSpan) -> str:
        stop = "until the end" if fault.stop is None else f"to {words.instant(fault.stop)}"
        lines = [
            f"fault {fault.id}: {_fault_texts(fault)[0]}",
            f"{words.instant(fault.start)} {stop} ({words.seconds(self._stop(fault) - fault.start)})",
        ]
        if fault.processes:
            lines.append("hits " + words.listing([words.who(process) for process in fault.processes]))
        lines += [text for text in (words.scalars(fault.evidence), fault.reason, fault.stop_reason) if text]
        lines.append("line " + " and ".join(str(line) for line in (fault.line, fault.stop_line) if line))
        return "\n".join(lines)

    # -- over all rows

    def _bands(self, top: float, bottom: float) -> None:
        """Faults as bands over all rows, and a red veil from the first to the last row that believe at once."""
        canvas = self.canvas
        for fault in self.story.faults:
            if fault.receipt != "skipped":
                canvas.back.append(canvas.rect(fault.start, self._stop(fault), top, bottom - top, "band"))
        for overlap in self.overlaps:
            rows = [self.row_y[process, overlap.lock] for process in overlap.processes]
            height = max(rows) - min(rows) + BAR + 2
            canvas.back.append(canvas.rect(overlap.start, overlap.end, min(rows) + 4, height, "veil"))

    def _pins(self, found: Found, top: float, bottom: float) -> None:
        """A finding's events as numbered pins, hidden until the page points at it (`:target`)."""
        parts: list[Markup] = []
        taken: dict[tuple[float, float], int] = {}
        for number, event in enumerate(found.events, 1):
            x, y = self.canvas.x(event.time), self._place(event.process, event.lock, event.keys, top)
            beside = taken.get((event.time, y), 0)  # events of one instant stand one above the other
            taken[event.time, y] = beside + 1
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="pin-line"))
            pin = tag("circle", cx=x, cy=y - 17 * beside, r=8, class_="pin")
            parts += [pin, tag("text", str(number), x=x, y=y + 4 - 17 * beside, class_="pin-text")]
        a, b = found.span
        group = tag("g", join(parts), id=f"at-{found.anchor}", class_="finding", data_a=repr(a), data_b=repr(b))
        self.canvas.front.append(group)

    def _place(self, process: int | str, lock: str | None, keys: Mapping[str, Any], top: float) -> float:
        if not isinstance(process, int):
            return self.fault_y.get(str(keys.get("id")), top)
        y = self.row_y.get((process, lock or ""))
        if y is None:  # a crash is of no lock
            y = next((each for (who, _), each in self.row_y.items() if who == process), top)
        if keys.get("f") == "write":
            return track(y, keys.get("resource"))
        return y + 5 + BAR / 2

    def _overview(self) -> Markup:
        """The whole trial in small: who believes, where faults lie, where two believe. Never zoomed."""
        canvas, story = self.canvas, self.story
        out = [canvas.rect(fault.start, self._stop(fault), 0, OVERVIEW, "band strong") for fault in story.faults]
        step = (OVERVIEW - 8) / max(1, len(story.rows))
        edges = np.linspace(story.start, story.end, 601)
        for index, row in enumerate(story.rows):
            grants = story.grants
            grants = grants[(grants["process"] == row.process) & (grants["lock"] == row.lock)]
            held = coverage(grants["ok"].to_numpy(), grants["belief_end"].to_numpy(), edges) >= 0.5
            change = np.flatnonzero(np.diff(np.concatenate([[0], held.astype(int), [0]])))
            out += [
                canvas.rect(float(edges[a]), float(edges[b]), 4 + index * step, max(1.0, step - 0.8), "belief")
                for a, b in zip(change[::2], change[1::2], strict=True)
            ]
        out += [canvas.rect(each.start, each.end, 0, OVERVIEW, "unsafe") for each in self.overlaps]
        return join(out)


def _fault_texts(fault: FaultSpan) -> list[str]:
    """What a fault is called: `freeze holder → c0 · landed, undone`, and the same without what can be spared."""
    target = f" {fault.target}" if fault.target else ""
    struck = ", ".join(fault.targets) or ", ".join(words.who(process) for process in fault.processes)
    arrow = f" → {struck}" if struck and struck != fault.target else ""
    receipts = ", ".join(receipt for receipt in (fault.receipt, fault.stop_receipt) if receipt)
    short = f"{fault.kind}{target}"
    return [short + arrow + (f" · {receipts}" if receipts else ""), short + arrow, short]

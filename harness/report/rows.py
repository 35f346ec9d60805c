"""One contender's row of the timeline: what it waited for, held, renewed, lost and wrote."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from harness.report import files, words
from harness.report.canvas import BAR, Canvas, hit, records
from harness.report.selection import Selection, coverage
from harness.report.story import Row, Story, finite
from harness.report.svg import tag

BINS = 400
"""Into so many boxes a row is summed up where it isn't drawn one by one."""


class RowPainter:
    """Paints contenders' rows; `y` is always a row's top edge in px."""

    def __init__(self, story: Story, selection: Selection, canvas: Canvas) -> None:
        self.story, self.selection, self.canvas = story, selection, canvas
        writes = story.operations[story.operations["f"] == "write"]
        self.writers = set(zip(writes["process"], writes["lock"], strict=True))
        self.wrong = {
            found.events[-1].line: found.finding.kind for found in story.found if found.verdict in ("fenced", "damage")
        }
        self.said = self._said()

    def _said(self) -> dict[int, str]:
        """Line -> what the event gives as its error or reason, for the drawn ones that have any to give."""
        operations, marks = self.selection.operations, self.selection.marks
        unsure = operations[(operations["outcome"] != "ok") & (operations["end_line"] > 0)]
        raw = files.read_lines(self.story.path, [*unsure["end_line"].tolist(), *marks["line"].tolist()])
        said = {line: event.get("error") or event.get("reason") for line, event in raw.items()}
        return {line: str(text) for line, text in said.items() if text is not None}

    def writes(self, row: Row) -> bool:
        """Whether a row has tracks for writes."""
        return (row.process, row.lock) in self.writers

    def height(self, row: Row) -> float:
        """Of a row with the gap below it, px."""
        return 62.0 if self.writes(row) else 38.0

    def paint(self, row: Row, y: float) -> None:
        """All of a row but the faults that hit it."""
        if not self.selection.whole:
            self._summed_up(row, y)
        operations = self._mine(self.selection.operations, row)
        self._attempts(row, y, operations[operations["f"] == "acquire"])
        self._holds(row, y)
        self._renewals(row, y, operations[operations["f"].isin(["renew", "release"])])
        self._writes(row, y, operations[operations["f"] == "write"])
        self._marks(row, y)

    def _mine(self, frame: pd.DataFrame, row: Row) -> pd.DataFrame:
        return frame[(frame["process"] == row.process) & (frame["lock"] == row.lock)]

    def _where(self, operation: Any) -> str:
        """The lines of an operation, and what it says of itself."""
        text = f"line {operation.line}" + (f" and {operation.end_line}" if operation.end_line else ", never answered")
        said = self.said.get(operation.end_line)
        return text + (f"\n{said}" if said else "")

    def _attempts(self, row: Row, y: float, acquires: pd.DataFrame) -> None:
        canvas, middle = self.canvas, y + 5 + BAR / 2
        for each in records(acquires):
            canvas.has.add("pending")
            end = finite(each.end, self.story.end)
            outcome = {"ok": "granted", "fail": "not granted", "info": "outcome unknown"}[each.outcome]
            title = (
                f"{words.who(row.process)} asks for the lock: {outcome}\n"
                f"{words.instant(each.invoke)} to {words.instant(end)}, waits {words.seconds(end - each.invoke)}\n"
                f"{self._where(each)}"
            )
            from_x, to_x = canvas.x(each.invoke), canvas.x(end)
            sign = None
            if each.outcome != "ok":
                canvas.has.add("wait-" + each.outcome)
                sign = canvas.use(f"end-{each.outcome}", end, middle)
            canvas.middle.append(
                hit(
                    title,
                    tag("line", x1=from_x, x2=to_x, y1=middle, y2=middle, class_=f"wait {each.outcome}"),
                    tag("line", x1=from_x, x2=from_x, y1=middle - 4, y2=middle + 4, class_="wait"),
                    sign,
                )
            )

    def _holds(self, row: Row, y: float) -> None:
        canvas, bar = self.canvas, y + 5
        for each in records(self._mine(self.selection.grants, row)):
            canvas.has.add("belief")
            known = not math.isnan(each.core_end)
            core = min(max(finite(each.core_end, self.story.end if known else each.ok), each.ok), self.story.end)
            promise = beyond = None
            if core > each.belief_end:
                canvas.has.add("promise")
                promise = canvas.rect(each.ok, core, bar, BAR, "promise", rx=3)
            if known and each.belief_end > core + 1e-6:
                canvas.has.add("beyond")
                beyond = canvas.rect(core, each.belief_end, bar, BAR, "beyond", rx=3)
            token = "" if pd.isna(each.token) else str(each.token)
            belief = canvas.rect(each.ok, each.belief_end, bar, BAR, "belief", rx=3)
            canvas.middle.append(hit(_hold_words(row, each, token), promise, belief, beyond))
            if token:
                canvas.front.append(canvas.inside(each.ok, each.belief_end, bar + 13, token, "token"))

    def _renewals(self, row: Row, y: float, operations: pd.DataFrame) -> None:
        canvas = self.canvas
        for each in records(operations):
            if each.f == "release" and each.outcome == "ok":
                continue  # the end of the bar says it
            canvas.has.add(each.f if each.outcome == "ok" else f"{each.f}-{each.outcome}")
            end = finite(each.end, each.invoke)
            outcome = {"ok": "succeeds", "fail": "fails", "info": "outcome unknown"}[each.outcome]
            title = f"{words.who(row.process)}: {each.f} {outcome}"
            if each.held == 0:
                title += ", the service says: not held"
            title += (
                f"\nsent {words.instant(each.invoke)}, took {words.seconds(end - each.invoke)}\n{self._where(each)}"
            )
            at = end if each.outcome == "fail" else each.invoke
            canvas.middle.append(hit(title, canvas.use(f"op-{each.outcome}", at, y + 27)))

    def _writes(self, row: Row, y: float, operations: pd.DataFrame) -> None:
        canvas = self.canvas
        for each in records(operations):
            end = finite(each.end, each.invoke)
            wrong = self.wrong.get(each.end_line)
            sign = "write-bad" if wrong else f"write-{each.outcome}"
            canvas.has.add(sign)
            outcome = {"ok": "accepted", "fail": "refused", "info": "outcome unknown"}[each.outcome]
            given = {key: getattr(each, key) for key in ("token", "seq", "read", "version")}
            title = (
                f"{words.who(row.process)} writes to the {each.resource} resource: {outcome}"
                + (f" ({wrong})" if wrong else "")
                + "\n"
                + ", ".join(f"{key} {value}" for key, value in given.items() if not pd.isna(value))
                + f"\n{words.instant(each.invoke)} to {words.instant(end)}\n{self._where(each)}"
            )
            (canvas.front if wrong else canvas.middle).append(
                hit(title, canvas.use(sign, end, track(y, each.resource)))
            )

    def _marks(self, row: Row, y: float) -> None:
        marks = self.selection.marks
        for each in records(
            marks[(marks["process"] == row.process) & ((marks["lock"] == row.lock) | (marks["f"] == "crash"))]
        ):
            self.canvas.has.add(each.f)
            what = "crashed" if each.f == "crash" else "no longer believes that it holds"
            said = self.said.get(each.line)
            title = f"{words.who(row.process)} {what}{f': {said}' if said else ''}"
            title += f"\n{words.instant(each.time)}\nline {each.line}"
            self.canvas.front.append(hit(title, self.canvas.use(each.f, each.time, y + 5)))

    def _summed_up(self, row: Row, y: float) -> None:
        """Boxes with the share of the time held, and in words what happened in each."""
        story, canvas = self.story, self.canvas
        canvas.has.add("density")
        edges = np.linspace(story.start, story.end, BINS + 1)
        grants = self._mine(story.grants, row)
        held = coverage(grants["ok"].to_numpy(), grants["belief_end"].to_numpy(), edges)
        operations = self._mine(story.operations, row)
        at = operations["end"].fillna(operations["invoke"]).to_numpy()
        where = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, BINS - 1)
        kinds = (operations["f"] + " " + operations["outcome"]).to_numpy()
        counts = pd.crosstab(where, kinds) if len(where) else pd.DataFrame()
        told = {int(index): numbers for index, numbers in zip(counts.index, counts.to_dict("records"), strict=True)}
        for index in range(BINS):
            a, b, share = float(edges[index]), float(edges[index + 1]), float(held[index])
            drawn = any(start <= a and b <= end for start, end in self.selection.windows)
            if drawn or (share <= 0 and index not in told):
                continue
            title = f"{words.who(row.process)}, {words.instant(a)} to {words.instant(b)}\n"
            title += f"held {words.share(share)} of the time"
            if index in told:
                title += "\n" + ", ".join(f"{number} {kind}" for kind, number in told[index].items() if number)
            width = f"{canvas.share(b - a):.5f}%"
            opacity = round(0.1 + 0.8 * share, 3) if share else 0
            bar = tag("rect", x=canvas.x(a), width=width, y=y + 5, height=BAR, class_="bin", fill_opacity=opacity)
            canvas.back.append(hit(title, bar))


def track(y: float, resource: str | None) -> float:
    """Where the writes to a resource stand in the row that begins at `y`: the middle of their marks."""
    return y + (49 if resource == "fenced" else 38)


def _hold_words(row: Row, grant: Any, token: str) -> str:
    lines = [
        f"{words.who(row.process)} holds" + (f", token {token}" if token else ", without a token"),
        f"asked {words.instant(grant.invoke)}, granted {words.instant(grant.ok)}",
        f"believes for {words.seconds(grant.belief_end - grant.ok)}, "
        f"until {words.instant(grant.belief_end)}: {grant.ended_by}",
    ]
    if not math.isnan(grant.promise):
        forever = math.isinf(grant.promise)
        lines.append("its lease runs until " + ("it is released" if forever else words.instant(grant.promise)))
    if math.isfinite(grant.core_end):
        lines.append(f"held for certain until {words.instant(grant.core_end)}")
    if grant.late:
        lines.append("late: its lease had run out before the grant arrived")
    lines.append(f"line {grant.line} and {grant.ok_line}")
    return "\n".join(lines)

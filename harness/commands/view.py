"""What a person sees while trials run: a live table on a terminal, plain lines elsewhere (CI logs, pipes)."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from checkers.findings import gravest
from checkers.words import beside
from harness import plain, redaction, secrets
from harness.report import files
from harness.report.words import statement
from harness.trial import Progress, TrialResult
from harness.trial.config import TrialConfig
from harness.trial.outcome import Outcome

STYLES = {
    "as-expected": "green",
    "violation": "bold red",
    "unknown": "yellow",
    "inconclusive": "yellow",
    "harness-error": "bold magenta",
}
VERDICT_ORDER = (
    "exclusion", "lease", "fencing", "linearizable", "fenced", "damage", "conduct", "progress", "faults",
)  # fmt: skip


PHASES = {
    "turn": "turn: waits until no other trial is starting on this machine",
    "start": "start: servers, contenders and the resource come up",
    "warm-up": "warm-up: contenders work, nothing is broken yet",
    "faults": "faults: the part in which things are broken; a node says itself what landed and was undone",
    "recovery": "recovery: no fault is on any more; who can't get on now is stuck",
    "stop": "stop: contenders leave, and the resource is read as a whole",
    "take-down": "take-down: logs are fetched, nodes removed",
    "check": "check: verdicts are decided, from the history alone",
}
"""What a trial says of itself by a word, said to people who have never seen one."""


class Screen(Console):
    """A console whose reader may go away (`| head`), or was never there: then it goes quiet, and the trials go on.

    What is lost is text; the results are in files, and the exit code tells.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, as long as somebody takes it."""
        try:
            # Before it is wrapped: half a secret at the end of a line is no longer found.
            shown = [redaction.text(part) if isinstance(part, str) else part for part in objects]
            super().print(*shown, **options)
        except OSError:
            self._go_quiet()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Whatever is printed, nothing in its text is obeyed by the terminal: names and reasons may be anybody's."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain.block(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """rich would end the process here, and its trials with it."""
        self._go_quiet()

    def _go_quiet(self) -> None:
        self.quiet = True
        if sys.stdout is not None:
            # What is still buffered must not fail once more when the interpreter ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def console() -> Console:
    """Where humans read: stdout, with a width that CI logs can take."""
    if sys.stdout is None:  # it was closed before we began
        return Screen(file=Path(os.devnull).open("w"), width=180, highlight=False, markup=False, emoji=False)
    return Screen(width=None if sys.stdout.isatty() else 180, highlight=False, markup=False, emoji=False)


class Watcher:
    """Shows running trials until it is closed. `progresses` gives name -> progress of those that run now."""

    def __init__(
        self, screen: Console, progresses: Callable[[], Mapping[str, Progress]], *, title: str | Callable[[], str]
    ) -> None:
        self._screen, self._progresses = screen, progresses
        self._title: Callable[[], str] = title if callable(title) else lambda: title
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> Watcher:
        if self._screen.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._screen, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, text: str | Text) -> None:
        """A line that stays: above the live table on a terminal, with the elapsed time elsewhere."""
        text = text if isinstance(text, Text) else Text(plain.block(text, indent="    "))
        with self._lock:
            if self._live is not None:
                self._live.console.print(text)
            else:
                stamp = Text(f"[{time.monotonic() - self._began:6.1f}s] ")
                self._screen.print(stamp + text)

    def _render(self) -> RenderableType:
        title = Text(f"{self._title()} - {time.monotonic() - self._began:.0f} s")
        table = self._table()
        if not _fits(table, self._screen):
            return Group(title, *self._lines())
        return Group(title, table)

    def _lines(self) -> Iterable[Text]:
        """The same for a terminal that is too narrow for a table: two lines for each trial."""
        for name, progress in self._progresses().items():
            yield Text(name, style="bold", no_wrap=True, overflow="ellipsis")
            line = Text(f"  {progress.phase}, {time.monotonic() - progress.started:.0f} s", overflow="ellipsis")
            line.no_wrap = True
            grants, outcomes, holds, came_to, faults = _now(progress)
            if grants:
                said = (
                    ("", f"{grants} grants"),
                    ("asked ", outcomes),
                    ("holds ", holds),
                    ("now ", faults),
                    ("faults so far ", came_to),
                )
                for heading, part in said:
                    if str(part) != "-":
                        line = line.append("; " + heading).append_text(part if isinstance(part, Text) else Text(part))
            yield line

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for heading in (
            "trial",
            "phase",
            "elapsed",
            "grants",
            "acquire ok/fail/info",
            "holds now",
            "faults so far",
            "faults now",
        ):
            table.add_column(heading, no_wrap=heading != "faults now")
        for name, progress in self._progresses().items():
            table.add_row(name, progress.phase, f"{time.monotonic() - progress.started:.0f} s", *_now(progress))
        return table


def phase_words(line: str) -> str:
    """A line that a trial says of itself, its phases in words."""
    return PHASES.get(line, line)


def _width(table: Table, screen: Console) -> int:
    """The columns that a table takes when nothing of it is wrapped or cut."""
    return table.__rich_measure__(screen, screen.options.update(max_width=10_000)).maximum


def _fits(table: Table, screen: Console) -> bool:
    """Whether nothing of a table must be wrapped or cut on this screen."""
    return _width(table, screen) <= screen.width


def _now(progress: Progress) -> list[str | Text]:
    live = progress.live
    if live is None:
        return ["", "", "", "", ""]
    outcomes = "/".join(str(live.outcomes[("acquire", kind)]) for kind in ("ok", "fail", "info"))
    holds = live.believers()
    text = Text(", ".join(f"c{hold.process}" + (f" token {hold.token}" if hold.token else "") for hold in holds) or "-")
    if len(holds) > 1:
        text.stylize("bold red")
    with live.changed:
        faults = ", ".join(live.active_faults.values()) or "-"
        came_to = ", ".join(f"{number} {word}" for word, number in live.came_to.items()) or "-"
    return [str(live.grants), outcomes, text, came_to, Text(faults, style="yellow" if faults != "-" else "")]


def verdict_text(value: bool | str | None, required: bool = True) -> Text:
    """One verdict in a cell of a table. A false one that isn't required is told in lower case."""
    if value is True:
        return Text("true", style="green")
    if value is False:
        return Text("FALSE", style="bold red") if required else Text("false", style="yellow")
    return Text("-" if value is None else str(value), style="yellow" if value else "dim")


def reason_lines(reasons: Sequence[str], prefix: str = "") -> Padding:
    """Reasons of an outcome, one below the other, indented where they wrap."""
    return Padding(Text("\n".join(prefix + plain.block(reason, indent="  ") for reason in reasons)), (0, 0, 0, 2))


def needs(variables: Iterable[str]) -> list[str]:
    """What the environment must hold for a run to be repeated: a line for each variable with a secret."""
    names = list(dict.fromkeys(variables))
    opened = secrets.unset(names)
    return [
        f"{name} in the environment" + (" (not set yet: its value was given in the open)" if name in opened else "")
        for name in names
    ]


def outcome_text(outcome: Outcome) -> Text:
    """The word for a cell, in its colour."""
    return Text(outcome.word, style=STYLES[outcome.word])


def left_out(result: TrialResult) -> str | None:
    """What the word "as-expected" leaves out of a trial: `damage is false, and not required`; None where nothing."""
    if result.outcome.word != "as-expected":
        return None
    return beside([*result.required, *result.config.expect], result.verdicts)


def _caption(results: Sequence[TrialResult]) -> str | None:
    """What the words of a table leave out."""
    told = [each for each in map(left_out, results) if each is not None]
    if not told:
        return None
    if len(results) == 1:
        return f"as-expected speaks of what was required; {told[0]}"
    counted = Counter(told).most_common()
    listed = "; ".join(f"{each} ({number} {'trial' if number == 1 else 'trials'})" for each, number in counted)
    return f"as-expected speaks of what was required; {listed}"


def system_words(config: TrialConfig, version: str | None = None) -> str:
    """`etcd 3.5.16`, `etcd@3.4.23 x5`, `redis by noop`: the system, which version of it ran, and what isn't usual."""
    ran = f" {version}" if version is not None and version != config.version else ""
    servers = f" x{config.servers}" if config.servers not in (None, 1, 3) else ""
    client = config.client_words()
    return config.system_words() + ran + servers + (f" by {client}" if client is not None else "")


def results_shown(results: Sequence[TrialResult], screen: Console) -> RenderableType:
    """What the trials came to: a table where the screen is wide enough for one, else a paragraph for each."""
    table = results_table(results)
    if _fits(table, screen):
        return table
    caption = _caption(results)
    below = [] if caption is None else [Text(caption, style="yellow")]
    return Group(*(part for result in results for part in _paragraph(result)), *below)


def print_results(results: Sequence[TrialResult], screen: Console) -> None:
    """Print what the trials came to, and why those did that were expected to come out otherwise than true.

    A pipe or a file has no edge: there it is always the table, a line a trial.
    """
    width, table = screen.width, results_table(results)
    if not screen.is_terminal:
        screen.width = max(width, _width(table, screen))
    try:
        screen.print(results_shown(results, screen))
        if _fits(table, screen):  # paragraphs say it each in its place
            for result in results:
                if result.outcome.word == "as-expected" and result.config.expect_reason:
                    why = f"{result.folder.name}: as expected: {result.config.expect_reason}"
                    screen.print(reason_lines([why]))
    finally:
        screen.width = width


def look(result: TrialResult) -> str | None:
    """The command that shows what led to a violation: the finding of which its reasons tell first. None where no
    required verdict is false."""
    checked = files.read_verdict(result.folder / files.VERDICT)
    for name, part in (checked.verdicts if checked is not None else {}).items():
        if part.valid is False and name in result.required and part.findings:
            number = gravest(finding.kind for finding in part.findings) + 1
            return shlex.join(["fencepost", "check", str(result.folder), "--explain", str(number)])
    return None


def beside_lines(result: TrialResult) -> list[str]:
    """What is false of a trial and not required, a sentence each: its reasons tell only of what decided. That they
    are not required is said by the caption where the word is "as-expected"."""
    told = {*result.required, *result.config.expect}
    said = "" if left_out(result) is not None else " is false, and not required"
    return [
        f"{name}{said}: {statement(name, 'false')}"
        for name, value in result.verdicts.items()
        if value is False and name not in told
    ]


def _paragraph(result: TrialResult) -> Iterable[RenderableType]:
    """One trial in few columns: what it was, how much happened, and the verdicts by their values, worst first."""
    config, outcome = result.config, result.outcome
    head = Text(f"{system_words(config, result.version)}  {config.fault_words()}  {config.kind}: ", style="bold")
    yield head.append_text(outcome_text(outcome))
    if outcome.word == "as-expected" and config.expect_reason:
        yield Padding(Text(plain.line(config.expect_reason)), (0, 0, 0, 2))
    counted = f"{outcome.grants} grants, {outcome.handovers} hand-overs"
    yield Padding(Text(counted + (f"; {outcome.faults}" if outcome.faults else "")), (0, 0, 0, 2))
    groups: dict[str, tuple[Text, list[str]]] = {}
    for name in (*VERDICT_ORDER, *sorted(set(result.verdicts) - set(VERDICT_ORDER))):
        word = verdict_text(result.verdicts.get(name), name in result.required or name in config.expect)
        if result.verdicts.get(name) is not None:
            groups.setdefault(word.plain, (word, []))[1].append(name)
    rows = Table(box=None, pad_edge=False, show_header=False)
    for value in sorted(groups, key=lambda value: (value == "true", value)):
        word, names = groups[value]
        rows.add_row(word, ", ".join(names) + (" (not required)" if value == "false" else ""))
    yield Padding(rows, (0, 0, 0, 2))


def results_table(results: Sequence[TrialResult]) -> Table:
    """One row for each trial: verdicts (those of plug-ins too), grants, the word; below, what the words leave out."""
    table = Table(box=None, pad_edge=False, caption=_caption(results), caption_justify="left", caption_style="yellow")
    others = sorted({name for result in results for name in result.verdicts} - set(VERDICT_ORDER))
    names = (*VERDICT_ORDER, *others)
    for heading in ("system", "fault", "came to", "contenders", *names, "grants", "hand-overs", "outcome"):
        table.add_column(heading, justify="right" if heading in ("grants", "hand-overs") else "left", no_wrap=True)
    for result in results:
        config = result.config
        table.add_row(
            system_words(config, result.version),
            config.fault_words(),
            result.outcome.faults or "-",
            config.kind,
            *(
                verdict_text(result.verdicts.get(name), name in result.required or name in config.expect)
                for name in names
            ),
            str(result.outcome.grants),
            str(result.outcome.handovers),
            outcome_text(result.outcome),
        )
    return table

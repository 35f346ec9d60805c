"""`fencepost demo`: the famous story, told as it happens, and as one page."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import plain
from harness.commands.options import chosen, folder_name, results_option, runtime_option

if TYPE_CHECKING:
    from rich.console import Console

    from harness.report.telling import Line, Teller
    from harness.trial import TrialResult

CELL: dict[str, Any] = {
    "system": "redis",
    "fault": "freeze-holder",
    "workload": "statements",
    "contenders": 3,
    "holder": "naive",
    "ttl": 2.0,
    "warmup": 4.0,
    "duration": 5.0,
    "fault_on": 5.0,
    "recovery": 3.0,
    "min_grants": 3,
    "min_handovers": 2,
    # More customers than can be sent to meanwhile: one month, so that a customer is a customer.
    "workload_options": {
        "customers": 5000, "batch": 20, "batches_min": 3, "batches_max": 5, "render_min": 0.35, "render_max": 0.5,
    },
}  # fmt: skip
"""One lease, one pause that outlives it."""

WIDTH = 80
INDENT = 10
STYLES = {"plain": "", "pause": "bold yellow", "bad": "bold red", "good": "green"}
LOOK_SECONDS = 0.05
NOT_AS_TOLD = 3
"""The exit code when nothing went wrong and yet the story did not come out: too little happened."""

INTRODUCTION = """
Each night one of three app servers, c0, c1 or c2, sends the customers their statements. A lock in Redis sees to it \
that only one does: a lease of two seconds, which its holder keeps renewing, and with it a token, a number that only \
rises. After a few batches it gives the lock back, and whoever gets it next goes on. In the middle of its work the \
holder will be paused for five seconds. Every batch goes to three mail rooms, three worlds of one job:
"""
GETTING = """
`fencepost images` pulls them where a registry answers, and builds them from Debian's packages where none does. That \
is done once, and takes a few minutes; then the demo takes about one.
"""
PHASES = {"start": "Redis, the app servers and the mail rooms are starting, on nodes of their own ..."}
"""What is told of what a trial says of itself; the rest is for people who know trials."""
TURN = "Another trial is starting on this machine; this one waits for its turn ..."
TURN_SECONDS = 2.0
"""How long it waits for its turn before it says so."""


@click.command()
@click.option(
    "--open/--no-open", "opens", default=True, help="Whether to open the page in a browser, where there is one."
)
@click.option("--seed", type=int, metavar="N", help="Of all that is drawn by lot; drawn and recorded when not given.")
@results_option
@click.option("--name", metavar="NAME", help="The trial's folder there (default: time and demo).")
@runtime_option
def command(opens: bool, seed: int | None, results: Path, name: str | None, runtime_name: str) -> None:
    """The famous story in a minute: a paused lock holder wakes, and customers get two statements.

    One real trial: Redis, a lease, three app servers, a pause (SIGSTOP). Told as it happens, counted three ways
    (unfenced, fenced, idempotent), and opened as one page.

    \b
    Exit codes: 0 the story came out as told; else those of `fencepost run`,
    and 3 when the pause missed.

    \b
    Examples:
      fencepost demo
      fencepost demo --no-open
    """
    from harness.commands.interrupt import attended
    from harness.commands.view import console
    from harness.errors import FencepostError, RuntimeUnavailable
    from harness.report import write_demo
    from harness.report.worlds import WHY, otherwise
    from harness.results import make, taken
    from harness.trial import Progress, Trial
    from harness.trial.config import from_mapping, resolve

    config = resolve(from_mapping({**CELL, **({} if seed is None else {"seed": seed})}))
    usual = folder_name(f"{time.strftime('%Y%m%dT%H%M%S')}-demo")
    if name is not None and (results / folder_name(name)).exists():
        raise taken(results / name)
    screen = console()
    runtime = chosen(runtime_name)
    try:
        runtime.image_versions(config.images_needed(), images=config.images)
    except RuntimeUnavailable as error:
        if "fencepost images" not in str(error):
            raise
        raise RuntimeUnavailable(f"{error}\n{GETTING.strip()}") from None

    said = Said(screen)
    said.paragraph(INTRODUCTION)
    screen.print()
    for world, why in WHY.items():
        said.under(world, why)
    screen.print()
    cancel, progress = threading.Event(), Progress(config.describe())
    progress.on_line = said.phase

    def trial() -> TrialResult:
        folder = make(results, name, usual)
        with Listener(folder / "history.jsonl", said.line):
            return Trial(config, folder, runtime, cancel=cancel, progress=progress).run()

    began = time.monotonic()
    result = attended(trial, stop=cancel.set, sweep=runtime.sweep)
    screen.print()
    counted = (result.tally or {}).get("counted") or {}
    wrong = otherwise(counted) if result.outcome.word == "as-expected" else list(result.outcome.reasons)
    page: Path | None = None
    if counted:
        said.counts(counted)
        try:
            page = write_demo(result.folder)
        except FencepostError as error:
            wrong.append(str(error))
        screen.print()
    code = 130 if cancel.is_set() else result.outcome.exit_code or (NOT_AS_TOLD if wrong else 0)
    if code == 0:
        said.paragraph("The lock did nothing wrong. No lease can stop a holder that is paused; only the mail room can.")
    elif code != 130:
        said.paragraph(f"The story did not come out as told ({result.outcome.word}):")
        for reason in wrong:
            said.paragraph(f"- {plain.line(reason)}")
    screen.print(
        f"It took {time.monotonic() - began:.0f} s; all of it is in {result.folder}", markup=False, soft_wrap=True
    )
    if page is not None:
        shown = opens and code != 130 and screen.is_terminal and in_browser(page)
        screen.print(f"page: {page}{' (opened in your browser)' if shown else ''}", markup=False, soft_wrap=True)
    sys.exit(code)


def in_browser(page: Path) -> bool:
    """Open a page, where there is a display and a browser. Whether it was.

    Without a display `webbrowser` would find those that run in a terminal, and take this one over.
    """
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False


class Said:
    """Prints the story, eighty columns wide at most. Safe from several threads."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._width = min(WIDTH, screen.width) if screen.is_terminal else WIDTH
        self._turn = threading.Lock()
        self._waiting = threading.Timer(TURN_SECONDS, self._indented, [TURN])
        self._waiting.daemon = True

    def paragraph(self, text: str) -> None:
        """Text over the whole width."""
        self._print(
            textwrap.fill(" ".join(text.split()), self._width, subsequent_indent="  " if text[:2] == "- " else "")
        )

    def under(self, head: str, text: str, style: str = "") -> None:
        """What one world is, or says."""
        first = " " * (INDENT + 2) + f"{head:<12}"
        self._print(textwrap.fill(text, self._width, initial_indent=first, subsequent_indent=" " * len(first)), style)

    def line(self, line: Line) -> None:
        """A line of the story."""
        style = STYLES[line.tone]
        if line.world is not None:
            return self.under(line.world, line.text, style)
        first = f"{line.seconds:6.1f} s  "
        return self._print(
            textwrap.fill(plain.line(line.text), self._width, initial_indent=first, subsequent_indent=" " * INDENT),
            style,
        )

    def phase(self, text: str) -> None:
        """What the trial says of itself: a few phases, and errors."""
        if text == "turn":
            self._waiting.start()
        elif text in PHASES or text.startswith("error: "):
            self._waiting.cancel()
            self._indented(PHASES.get(text, plain.line(text)))

    def _indented(self, text: str) -> None:
        indent = " " * INDENT
        self._print(textwrap.fill(text, self._width, initial_indent=indent, subsequent_indent=indent))

    def counts(self, counted: dict[str, Any]) -> None:
        """What it came to, a line for each world."""
        from harness.report.worlds import cards

        self.paragraph("What it came to, counted by the mail rooms themselves:")
        for card in cards(counted):
            self.under(card.world, f"{card.headline}: {card.told}", STYLES["bad" if card.twice else "good"])

    def _print(self, text: str, style: str = "") -> None:
        with self._turn:
            self._screen.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)


class Listener:
    """Reads a history while it is written, and hands on what it tells. As a context, to the last of its lines."""

    def __init__(self, path: Path, on_line: Any) -> None:
        self._path, self._on_line = path, on_line
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="listener", daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(10.0)

    def _listen(self) -> None:
        from harness.report.telling import Teller

        while not self._path.exists():
            if self._over.wait(LOOK_SECONDS) and not self._path.exists():
                return
        teller, rest = Teller(), b""
        with self._path.open("rb") as stream:
            while True:
                over = self._over.is_set()  # looked at before reading: what is written by then is read
                *lines, rest = (rest + stream.read()).split(b"\n")
                for line in lines:
                    self._tell(teller, line)
                if over:
                    return
                self._over.wait(LOOK_SECONDS)

    def _tell(self, teller: Teller, line: bytes) -> None:
        if line.strip():
            for told in teller.tell(json.loads(line)):
                self._on_line(told)

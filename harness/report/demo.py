"""The page of `fencepost demo`: one job in three worlds, what became of it, and when, from the files of the trial."""

from __future__ import annotations

import json
from pathlib import Path

from harness.errors import ConfigError
from harness.history import read
from harness.report import files, page, stored, timeline, worlds
from harness.report.story import tell
from harness.report.telling import Line, Teller

MOST_FINDINGS = 12


def write(folder: Path) -> Path:
    """See `harness.report.write_demo`."""
    trial = files.read_trial(folder)
    if trial is None or trial.tally is None:
        raise ConfigError(folder / files.TRIAL, "tally", "is missing: nobody counted what the job came to")
    try:
        cards = worlds.cards(trial.tally.get("counted") or {})
    except ValueError as error:
        raise ConfigError(folder / files.TRIAL, "tally.counted", str(error)) from None
    path = folder / files.HISTORY
    history = read(path)
    kept = stored.look(folder, path, again=False)
    checked = kept.checked if kept.checked is not None and kept.stale is None else stored.judged(history)
    story = tell(history, path, trial, files.read_journal(folder), checked)
    text = page.render(
        "demo.html.j2",
        title="One job, three worlds",
        trial=trial,
        cards=cards,
        lines=lines(path),
        story=story,
        drawing=timeline.draw(story) if story.events else None,
        ttl=story.meta.ttl,
        found=story.found[:MOST_FINDINGS],
        report=files.REPORT if (folder / files.REPORT).is_file() else None,
    )
    return page.write(folder / files.DEMO, text, [folder])


def lines(path: Path) -> list[Line]:
    """The story that a history of the statement job tells."""
    teller, told = Teller(), []
    with path.open("rb") as stream:
        for line in stream:
            told += teller.tell(json.loads(line))
    return told

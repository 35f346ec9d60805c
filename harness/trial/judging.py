"""What a trial came to: its history judged from the file alone, verdict.json, the last trial.json, the report."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checkers import judge
from harness import history, redaction
from harness.report import write_trial
from harness.trial.config import TrialConfig
from harness.trial.ledger import lost_unheard
from harness.trial.outcome import Outcome, decide
from harness.trial.record import TrialRecord
from harness.trial.recorder import write_json
from harness.trial.strain import words
from nemesis.bite import Tally


@dataclass(frozen=True)
class TrialResult:
    """What a trial came to. `verdicts` is name -> true, false or "unknown"."""

    folder: Path
    config: TrialConfig
    outcome: Outcome
    verdicts: Mapping[str, bool | str]
    report: Path | None
    required: Sequence[str] = ()
    """Which verdicts its history requires."""
    kept: Sequence[str] = ()
    tally: Mapping[str, Any] | None = None
    """What the job came to, by the resource's own count ("counted", and "words" for people); None where none counts."""
    version: str | None = None
    """Of the system, as its servers told; None where they didn't."""


def conclude(
    config: TrialConfig,
    record: TrialRecord,
    *,
    handovers: int,
    tally: Tally | None,
    kept: Sequence[str],
    cancel: threading.Event,
    strain: float | None = None,
    unknown: float | None = None,
) -> TrialResult:
    """Judge, write it all down, and say how it ended. The last phase of a trial, with or without a history.

    `tally` is that of `outcome.decide`; `kept` is handed on; `cancel` is the user's wish to stop, and ends checkers of
    others soon. `strain` is how far the machine was overcome (`strain.Strain`), `unknown` the share of the operations
    that ended in `info`.
    """
    record.phase("check")
    folder = record.folder
    judgement: dict[str, Any] | None = None
    if (folder / "history.jsonl").exists():
        with record.guard("judging"):
            judgement = redaction.data(judge(history.read(folder / "history.jsonl"), cancel=cancel).to_json())
            write_json(folder / "verdict.json", judgement)
            for problem in lost_unheard(judgement, config.expect):
                record.note(problem)
    outcome = decide(
        judgement,
        expect=config.expect,
        min_grants=config.min_grants,
        min_handovers=config.min_handovers,
        handovers=handovers,
        tally=tally,
        errors=record.errors,
        strain=words(strain),
        unknown=unknown if config.client_digest is not None else None,
    )
    record.end_phases()
    if strain is not None:
        record.data["strain"] = {"cpu": round(strain, 3)}
    record.data["outcome"] = outcome.to_json()
    record.data["error"] = "; ".join(record.errors) or None
    with record.guard("saving trial.json"):
        record.save()
    report: Path | None = None
    with record.guard("report"):
        report = write_trial(folder)
    if record.errors and outcome.word != "violation":
        outcome = replace(outcome, word="harness-error", reasons=record.errors)
    verdicts = {name: entry["valid"] for name, entry in ((judgement or {}).get("verdicts") or {}).items()}
    record.progress.phase = outcome.word
    required = (judgement or {}).get("required") or ()
    version = record.data.get("versions", {}).get("system")
    return TrialResult(folder, config, outcome, verdicts, report, required, kept, record.data.get("tally"), version)

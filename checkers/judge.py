"""Judging one history: every verdict, and the overall word."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkers import answers, plugins
from checkers.findings import Verdict, Word
from checkers.intervals import Model, build
from harness import registry
from harness.errors import UsageError
from harness.history.events import ACQUIRE, FENCED, NONE, OK, WRITE, History

#: Counts the versions of the contract (docs/contract.md) by which histories are judged, and changes with it. Every
#: judgement carries it, so that one made by other rules is not taken for one of today's.
RULES = 2

#: The order in which verdicts are shown; others that are registered follow.
BUILT_IN = ("exclusion", "lease", "fencing", "fenced", "damage", "conduct", "linearizable", "progress", "faults")


@dataclass(frozen=True)
class Judgement:
    """What was decided about one history."""

    path: str
    valid: Word
    required: tuple[str, ...]
    verdicts: dict[str, Verdict]
    events: int
    grants: int
    cut_off: str | None = None
    """What is missing of a history that isn't whole, when that left all verdicts unknown; None else."""

    def to_json(self) -> dict[str, Any]:
        """One object of `fencepost check --json`."""
        return {
            "path": self.path,
            "valid": self.valid,
            "required": list(self.required),
            "verdicts": {name: verdict.to_json() for name, verdict in self.verdicts.items()},
            "events": self.events,
            "grants": self.grants,
            "rules": RULES,
            **({} if self.cut_off is None else {"cut_off": self.cut_off}),
        }


def judge(
    history: History,
    require: Sequence[str] | None = None,
    owners: bool | None = None,
    certificates: bool = False,
    partial: bool = False,
    cancel: threading.Event | None = None,
) -> Judgement:
    """Decides every registered verdict of a history.

    `require` names the verdicts that make up the overall word, else the meta's list, else the contract's default.
    `owners=False` judges as a mutex that any process may release, whatever the meta says. `certificates` adds to
    `linearizable` what its answer can be checked by. Of a history that is cut off every verdict is unknown, and its
    findings are listed all the same, unless `partial` asks to judge what is there as if it were whole.

    Raises `UsageError` for a required verdict that nobody registered. A checker that crashes, can't be imported or
    returns what isn't a verdict gives "unknown" with the reason in `note`: never a pass, never the loss of the others.
    Those that aren't ours run in a process of their own, with a deadline (`checkers.plugins`); `cancel` is the user's
    wish to stop, and ends them soon.
    """
    known = verdict_names()
    wanted = require if require is not None else history.meta.require
    for name in wanted or ():
        if name not in known:
            raise UsageError(f"required verdict {name!r} is unknown (known: {', '.join(known)})")
    owned = history.meta.owners if owners is None else owners
    try:
        model = build(history, owners=owners, certificates=certificates)
    except Exception as error:  # noqa: BLE001  as in `_run`: without the model nothing is known, and nothing passes
        verdicts = dict.fromkeys(known, answers.crashed(error))
    else:
        verdicts = {name: _run(name, model) for name in known if _ours(name)}
        foreign = {name: registry.reference("verdicts", name) for name in known if name not in verdicts}
        verdicts |= plugins.ask(foreign, model, cancel)
        verdicts = {name: verdicts[name] for name in known}
    cut_off = None if partial or not history.cut_off else _missing(history)
    if cut_off is not None:
        verdicts = {name: _unsure(verdict, cut_off) for name, verdict in verdicts.items()}
    required = tuple(dict.fromkeys(wanted)) if wanted is not None else _default_required(history, owned, verdicts)
    grants = int(((history.f == ACQUIRE) & (history.type == OK)).sum())
    return Judgement(
        path=history.path,
        valid=_overall([verdicts[name].valid for name in required], grants >= history.meta.min_grants),
        required=required,
        verdicts=verdicts,
        events=len(history),
        grants=grants,
        cut_off=cut_off,
    )


def verdict_names() -> tuple[str, ...]:
    """All registered verdicts, the built-in ones first."""
    registered = registry.names("verdicts")
    return tuple(name for name in BUILT_IN if name in registered) + tuple(
        name for name in registered if name not in BUILT_IN
    )


def _ours(name: str) -> bool:
    return name in BUILT_IN and registry.reference("verdicts", name) == f"checkers.{name}:check"


def _missing(history: History) -> str:
    if history.counted is None:
        return "the end line that its meta promises is missing"
    return f"its end line counts {history.counted} events, and here are {len(history)}"


def _unsure(verdict: Verdict, cut_off: str) -> Verdict:
    """What is left of a verdict where a line may be missing that clears somebody."""
    note = f"the history is cut off: {cut_off}"
    if verdict.note is not None:
        note += ("\n" if "\n" in verdict.note else "; ") + verdict.note
    return replace(verdict, valid="unknown", note=note, certificate=None)


def _run(name: str, model: Model) -> Verdict:
    """The answer of a checker of ours, in this process."""
    try:
        return answers.own(registry.load("verdicts", name)(model), model)
    except Exception as error:  # noqa: BLE001  whatever a checker dies of, the others stand
        return answers.crashed(error)


def _default_required(history: History, owners: bool, verdicts: Mapping[str, Verdict]) -> tuple[str, ...]:
    names = ["lease"] if owners else []
    granted = (history.f == ACQUIRE) & (history.type == OK)
    if owners and bool((history.token[granted] != NONE).any()):
        names.append("fencing")
    accepted = (history.f == WRITE) & (history.type == OK) & (history.resource == FENCED)
    if bool(accepted.any()) or verdicts["fenced"].valid is False:
        names.append("fenced")
    names.append("linearizable")
    if history.meta.progress_bound is not None:
        names.append("progress")
    names.append("faults")
    return tuple(names)


def _overall(words: list[Word], enough: bool) -> Word:
    if any(word is False for word in words):
        return False
    return True if enough and all(word is True for word in words) else "unknown"

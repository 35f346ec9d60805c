"""Judging one history: every verdict, and the overall word."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
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
BUILT_IN = ("exclusion", "lease", "fencing", "fenced", "damage", "linearizable", "progress", "faults")


@dataclass(frozen=True)
class Judgement:
    """What was decided about one history."""

    path: str
    valid: Word
    required: tuple[str, ...]
    verdicts: dict[str, Verdict]
    events: int
    grants: int

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
        }


def judge(
    history: History,
    require: Sequence[str] | None = None,
    owners: bool | None = None,
    certificates: bool = False,
    cancel: threading.Event | None = None,
) -> Judgement:
    """Decides every registered verdict of a history.

    `require` names the verdicts that make up the overall word, else the meta's list, else the contract's default.
    `owners=False` judges as a mutex that any process may release, whatever the meta says. `certificates` adds to
    `linearizable` what its answer can be checked by. Raises `UsageError` for a required verdict that nobody registered.
    A checker that crashes, can't be imported or returns what isn't a verdict gives "unknown" with the reason in `note`:
    never a pass, never the loss of the others. Those that aren't ours run in a process of their own, with a deadline
    (`checkers.plugins`); `cancel` is the user's wish to stop, and ends them soon.
    """
    known = verdict_names()
    wanted = require if require is not None else history.meta.require
    for name in wanted or ():
        if name not in known:
            raise UsageError(f"required verdict {name!r} is unknown (known: {', '.join(known)})")
    owned = history.meta.owners if owners is None else owners
    required = tuple(dict.fromkeys(wanted)) if wanted is not None else _default_required(history, owned)
    try:
        model = build(history, owners=owners, certificates=certificates)
    except Exception as error:  # noqa: BLE001  as in `_run`: without the model nothing is known, and nothing passes
        verdicts = dict.fromkeys(known, answers.crashed(error))
    else:
        verdicts = {name: _run(name, model) for name in known if _ours(name)}
        foreign = {name: registry.reference("verdicts", name) for name in known if name not in verdicts}
        verdicts |= plugins.ask(foreign, model, cancel)
        verdicts = {name: verdicts[name] for name in known}
    grants = int(((history.f == ACQUIRE) & (history.type == OK)).sum())
    return Judgement(
        path=history.path,
        valid=_overall([verdicts[name].valid for name in required], grants >= history.meta.min_grants),
        required=required,
        verdicts=verdicts,
        events=len(history),
        grants=grants,
    )


def verdict_names() -> tuple[str, ...]:
    """All registered verdicts, the built-in ones first."""
    registered = registry.names("verdicts")
    return tuple(name for name in BUILT_IN if name in registered) + tuple(
        name for name in registered if name not in BUILT_IN
    )


def _ours(name: str) -> bool:
    return name in BUILT_IN and registry.reference("verdicts", name) == f"checkers.{name}:check"


def _run(name: str, model: Model) -> Verdict:
    """The answer of a checker of ours, in this process."""
    try:
        return answers.own(registry.load("verdicts", name)(model), model)
    except Exception as error:  # noqa: BLE001  whatever a checker dies of, the others stand
        return answers.crashed(error)


def _default_required(history: History, owners: bool) -> tuple[str, ...]:
    names = ["lease"] if owners else []
    granted = (history.f == ACQUIRE) & (history.type == OK)
    if owners and bool((history.token[granted] != NONE).any()):
        names.append("fencing")
    if bool(((history.f == WRITE) & (history.type == OK) & (history.resource == FENCED)).any()):
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

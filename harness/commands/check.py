"""`fencepost check`: decide the verdicts of recorded histories."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from harness import plain
from harness.commands.helping import GroupedCommand
from harness.commands.terminal import readable, wrapped
from harness.errors import HistoryError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from checkers import Judgement
    from checkers.findings import Finding, Verdict, Word
    from harness.history import History


@dataclass(frozen=True)
class _Options:
    """How histories are to be read and judged."""

    format: str
    release_fail: str | None
    fields: dict[str, str]
    ttl: float | None
    require: tuple[str, ...] | None
    no_owners: bool
    certificates: bool
    partial: bool


@dataclass(frozen=True)
class _Result:
    """What became of one path: a judgement, or the error that kept it from being read."""

    path: str
    judgement: Judgement | None = None
    error: HistoryError | None = None
    history: History | None = None
    file: Path | None = None
    """Where the history lies, for as long as it is kept."""
    policies: dict[str, Judgement] | None = None
    """The judgements under the other readings of a failed release, the chosen one first; None for native histories."""

    def to_json(self) -> dict[str, Any]:
        if self.judgement is None:
            assert self.error is not None
            return {"path": self.path, "error": {"line": self.error.line, "reason": self.error.reason}}
        out = {**self.judgement.to_json(), "path": self.path}
        if self.policies is not None:
            chosen, *others = self.policies
            out["release_fail"] = {
                "policy": chosen,
                "differs": {name: _differences(self.policies[chosen], self.policies[name]) for name in others},
            }
        return out


@click.command(
    "check",
    cls=GroupedCommand,
    headings={
        "What is printed": ("explain", "verdict", "as_json", "certificates"),
        "How it is judged": ("require", "no_owners", "partial"),
        "How it is read": ("format_", "release_fail", "maps", "ttl"),
    },
    epilog="""\b
Examples:
  fencepost check results/my-trial              # a table, and what went wrong
  fencepost check cases/*.jsonl --json          # the same for programs
  fencepost check results/my-trial --explain 1  # the events around a finding
  fencepost check results/matrix-1              # all trials of a matrix
  fencepost check history.jsonl.zst             # compressed ones as they are
  ssh host cat history.jsonl.gz | fencepost check -
  fencepost check history.jsonl --require lease,fencing
  fencepost check history.edn --no-owners --release-fail released
  fencepost check ops.json --map time=timestamp --map token=value.fence

\b
Exit code: 1 when a history is false, else 2 when one can't be read,
else 3 when one is unknown, else 0.""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One object for each PATH, as a list.")
@click.option(
    "--require", metavar="A,B", help="The verdicts that make up the overall word (default: what the meta says)."
)
@click.option("--no-owners", is_flag=True, help="Any process may release: judge a plain mutex, without expiry.")
@click.option(
    "--certificates", is_flag=True, help="With --json: add to linearizable what its answer can be checked by."
)
@click.option("--partial", is_flag=True, help="Judge a history that is cut off as if what is there were all.")
@click.option(
    "--explain", type=click.IntRange(1), metavar="N", help="Print the events around finding N instead of the table."
)
@click.option(
    "--verdict",
    metavar="NAME",
    help="Whose finding N (default: the first required verdict that is false, else the first).",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["auto", "fencepost", "edn", "jepsen-json"]),
    default="auto",
    show_default=True,
    help="What the histories are written in; auto tells by name and content.",
)
@click.option(
    "--release-fail",
    type=click.Choice(["held", "released", "unknown"]),
    help="What a failed release says in an imported history: the lock was still held, was no longer, or nothing.",
)
@click.option(
    "--map", "maps", multiple=True, metavar="FIELD=NAME", help="What an imported history calls a field of ours."
)
@click.option("--ttl", type=float, metavar="SECONDS", help="Time to live of the leases in an imported history.")
def command(
    paths: tuple[str, ...],
    as_json: bool,
    require: str | None,
    no_owners: bool,
    certificates: bool,
    partial: bool,
    explain: int | None,
    verdict: str | None,
    format_: str,
    release_fail: str | None,
    maps: tuple[str, ...],
    ttl: float | None,
) -> None:
    """Decide the verdicts of recorded histories.

    PATH is a history, `-` for one on standard input, a trial's folder (with a history.jsonl), or a folder of trials, of
    which each is judged. Compressed ones (gzip, Zstandard) are read as they are, and so are histories of Jepsen and
    Knossos (EDN, JSON). What each verdict means is in docs/verdicts.md.
    """
    if certificates and not as_json:
        raise UsageError("--certificates goes with --json")
    options = _Options(
        format=format_,
        release_fail=release_fail,
        fields=_fields(maps),
        ttl=ttl,
        require=_required(require),
        no_owners=no_owners,
        certificates=certificates,
        partial=partial,
    )
    if explain is None and verdict is not None:
        raise UsageError("--verdict goes with --explain")
    if explain is not None and as_json:
        raise UsageError("--explain is not for --json, which has all findings")
    if paths.count("-") > 1:
        raise UsageError("there is one standard input: give - once")
    histories = _trials(paths)
    if explain is not None:
        if len(histories) != 1 or not isinstance(histories[0], str):
            raise UsageError(f"--explain is for one PATH, and here are {len(histories)} histories")
        with ExitStack() as kept:
            result = _check(histories[0], options, kept)
            _print(lambda: _explain(result, explain, verdict))
        sys.exit(_exit_code([result]))
    results = []
    for path in histories:
        if isinstance(path, _Result):
            results.append(path)
            continue
        result = _check(path, options)
        # Only --explain needs the events again: a long list of paths mustn't keep them all.
        results.append(_Result(result.path, result.judgement, result.error, policies=result.policies))
    if as_json:
        _print(lambda: click.echo(_json(results)))
    else:
        _print(lambda: _show(results))
    sys.exit(_exit_code(results))


def _json(results: list[_Result]) -> str:
    return plain.json_text(json.dumps([result.to_json() for result in results], ensure_ascii=False))


def _trials(paths: tuple[str, ...]) -> list[str | _Result]:
    """The histories that the paths mean, or the result already where that can't be told."""
    from harness.history import reader

    found: list[str | _Result] = []
    for path in paths:
        try:
            found += reader.trials(path)
        except HistoryError as error:
            found.append(_Result(str(error.path), error=error))
    return found


def _print(show: Callable[[], None]) -> None:
    """Prints to a reader who may have seen enough (`| head`): that must not turn the exit code into "invalid"."""
    try:
        show()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _required(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    from checkers.judge import verdict_names

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = verdict_names()
    if not names:
        raise UsageError(f"--require names no verdict (known: {', '.join(known)}); leave it out for the default")
    for name in names:
        if name not in known:
            raise UsageError(f"--require: there is no verdict {name!r} (known: {', '.join(known)})")
    return names


def _fields(maps: tuple[str, ...]) -> dict[str, str]:
    if not maps:
        return {}
    from harness.history.imports import parse_fields

    return parse_fields(maps)


def _check(path: str, options: _Options, kept: ExitStack | None = None) -> _Result:
    """The result for a path. What it takes to read it is kept until `kept` is closed, else only until it is judged."""
    from harness.history import reader

    try:
        with ExitStack() as own:
            file = reader.find((kept or own).enter_context(reader.kept(path)))
            return _judged(path, file, options)
    except HistoryError as error:
        return _Result(path, error=error)
    except UsageError as error:
        if options.require is not None:
            raise
        # The meta requires a verdict that isn't there: the history's fault, not the caller's.
        return _Result(path, error=HistoryError(path, 1, str(error)))
    except MemoryError:
        return _Result(path, error=HistoryError(path, 0, "not enough memory to read and judge it"))
    except Exception as error:  # noqa: BLE001  the other paths still get their answer, and this one no pass
        click.echo(plain.block(traceback.format_exc()), err=True)
        return _Result(path, error=HistoryError(path, 0, f"reading it failed, a bug of Fencepost: {error!r}"))


def _judged(path: str, file: Path, options: _Options) -> _Result:
    """The result for a path whose history is in `file`."""
    from checkers import judge
    from harness.history import native, reader

    kind = reader.detect(file) if options.format == "auto" else options.format
    if kind == "fencepost":
        histories = {"": native.read(file)}
    else:
        from harness.history import imports

        histories = imports.readings(
            file,
            format=kind,
            release_fail=options.release_fail,
            fields=options.fields,
            owners=False if options.no_owners else None,
            ttl=options.ttl,
        )
    owners = False if options.no_owners else None
    judgements = {
        policy: judge(history, options.require, owners, options.certificates, partial=options.partial)
        for policy, history in histories.items()
    }
    chosen = next(iter(judgements))
    return _Result(
        path,
        judgements[chosen],
        history=histories[chosen],
        file=file,
        policies=judgements if kind != "fencepost" and len(judgements) > 1 else None,
    )


def _exit_code(results: list[_Result]) -> int:
    words = [result.judgement.valid for result in results if result.judgement is not None]
    if any(word is False for word in words):
        return 1
    if len(words) < len(results):
        return 2
    return 3 if "unknown" in words else 0


# -- for people -------------------------------------------------------------------------------------------------------

#: So many kinds of findings of a verdict are told in words.
_KINDS = 4

_SIGNS: dict[Any, tuple[str, str]] = {
    True: ("true", "green"),
    False: ("FALSE", "red"),
    "unknown": ("unknown", "yellow"),
}


def _word(word: Word, width: int = 0) -> str:
    sign, colour = _SIGNS[word]
    return click.style(sign.ljust(width), fg=colour, bold=word is False)


def _show(results: list[_Result]) -> None:
    for number, result in enumerate(results):
        if number:
            click.echo()
        if result.judgement is None:
            assert result.error is not None
            click.echo(click.style(f"{plain.line(result.path)}: can't be read", fg="red", bold=True))
            where = f"line {result.error.line}: " if result.error.line else ""
            click.echo(f"  {where}{plain.line(result.error.reason)}")
        else:
            _show_one(result, result.judgement)
    if len(results) > 1:
        counts = dict.fromkeys(("true", "FALSE", "unknown", "unreadable"), 0)
        for result in results:
            counts["unreadable" if result.judgement is None else _SIGNS[result.judgement.valid][0]] += 1
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        partly = sum(_beside(result.judgement) is not None for result in results if result.judgement is not None)
        click.echo(f"\n{len(results)} histories: {told}")
        if partly:
            click.echo(f"In {partly} of them verdicts are false that are not required, and the word leaves them out.")


def _beside(judgement: Judgement) -> str | None:
    """What the overall word leaves out; None where it is false anyway, or leaves out nothing."""
    from checkers import words

    if judgement.valid is False:
        return None
    return words.beside(judgement.required, {name: each.valid for name, each in judgement.verdicts.items()})


def _show_one(result: _Result, judgement: Judgement) -> None:
    grants = f"{judgement.grants:,} grant{'' if judgement.grants == 1 else 's'}"
    word, beside = _word(judgement.valid), _beside(judgement)
    if beside is not None:
        kept = "true of what was required" if judgement.valid is True else judgement.valid
        word = click.style(f"{kept}; {plain.line(beside)} (--require)", fg="yellow")
    head = f"{plain.line(result.path)}: {word}  ({judgement.events:,} events, {grants})"
    whole = click.unstyle(head)
    if "\n" in (narrow := wrapped(whole, 2)):  # where it is cut, all of it has the colour of its word
        head = click.style(narrow, fg="yellow" if beside is not None else _SIGNS[judgement.valid][1])
    click.echo(head)
    if judgement.cut_off is not None:
        told = f"cut off: {judgement.cut_off}. A line may be missing that clears somebody, so all is unknown"
        click.echo(click.style(f"  {told} (--partial judges what is there)", fg="yellow"))
    width = max(len(plain.line(name)) for name in judgement.verdicts)
    for name, verdict in judgement.verdicts.items():
        mark = "required" if name in judgement.required else "not required" if verdict.valid is False else ""
        note = (verdict.note or "").partition("\n")[0]
        count = _count(verdict)
        said = count if count and verdict.valid is not False else "; ".join(part for part in (count, note) if part)
        shown = plain.line(name).ljust(width)
        # The colour takes no columns, so what follows it is wrapped by itself.
        left = len(f"  {shown}  {'':8}  {'':12}  ")
        told = wrapped(" " * left + plain.line(said), left)[left:]
        click.echo(f"  {shown}  {_word(verdict.valid, 8)}  {mark:<12}  {told}".rstrip())
    for name, verdict in judgement.verdicts.items():
        if _tells(judgement, verdict):
            shown_here = _in_words(name, verdict)
            for number in shown_here:
                _show_finding(name, number + 1 if len(verdict.findings) > 1 else None, verdict.findings[number])
            others = [number for number in range(len(verdict.findings)) if number not in shown_here]
            if others:
                whose = "" if name == _told_first(judgement) else f" --verdict {plain.line(name)}"
                which = str(shown_here[0] + 1 if len(shown_here) == 1 else len(shown_here))
                which += f" of {_total(verdict):,}" + (", the gravest" if shown_here[0] else "")
                shows = f"--explain {others[0] + 1}{whose} shows the {'next' if others[0] else 'first'}"
                click.echo(f"    ({which}; {shows})")
        elif verdict.note is not None and "\n" in verdict.note:
            click.echo(f"\n  {plain.line(name)}: {plain.block(verdict.note.strip(), indent='    ')}")
    if result.policies is not None:
        _show_policies(result.policies)


def _in_words(name: str, verdict: Verdict) -> list[int]:
    """Which findings are told in words: the gravest, and the first of each other kind.

    Of linearizable one is enough: it points to where the others stand.
    """
    from checkers.findings import gravest

    kinds = [finding.kind for finding in verdict.findings]
    first = gravest(kinds)
    if name == "linearizable":
        return [first]
    return [first, *(kinds.index(kind) for kind in dict.fromkeys(kinds) if kind != kinds[first])][:_KINDS]


def _show_finding(name: str, number: int | None, finding: Finding) -> None:
    """A finding in words. Its number, where there are several, is that of `--explain` and of the report."""
    which = plain.line(name) + (f" {number}" if number is not None else "")
    kind = plain.line(finding.kind) + (f", blame {_blamed(finding.blame)}" if finding.blame else "")
    lines = ", ".join(str(line) for line in finding.events)
    click.echo(f"\n  {which}: {kind} (line{'s' if len(finding.events) != 1 else ''} {lines})")
    width = readable()
    text = textwrap.fill(
        plain.line(finding.text),
        width,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    click.echo(text)


def _blamed(word: str) -> str:
    """The contract's `service` is whatever answered: what stands before a service may have made its answers."""
    return "service or library" if word == "service" else plain.line(word)


def _tells(judgement: Judgement, verdict: Verdict) -> bool:
    """Whether the findings of a verdict say that something is wrong."""
    return bool(verdict.findings) and (verdict.valid is False or judgement.cut_off is not None)


def _told_first(judgement: Judgement) -> str | None:
    """The verdict that `--explain` means without `--verdict`: the first required one that is false, else the first.

    Of a history that is cut off, those that found anything stand for the false ones.
    """
    false = [name for name, verdict in judgement.verdicts.items() if _tells(judgement, verdict)]
    return next((name for name in false if name in judgement.required), next(iter(false), None))


def _total(verdict: Verdict) -> int:
    return len(verdict.findings) if verdict.count is None else verdict.count


def _count(verdict: Verdict) -> str:
    count = _total(verdict)
    return f"{count:,} finding{'' if count == 1 else 's'}" if count else ""


def _differences(one: Judgement, other: Judgement) -> dict[str, Word]:
    """The words of another judgement where they differ from one's, `valid` among them."""
    words: dict[str, Word] = {} if one.valid == other.valid else {"valid": other.valid}
    for name, verdict in other.verdicts.items():
        if one.verdicts[name].valid != verdict.valid:
            words[name] = verdict.valid
    return words


def _show_policies(policies: dict[str, Judgement]) -> None:
    chosen, *others = policies
    click.echo(f"\n  Some releases failed; this reads them by --release-fail {chosen}.")
    for other in others:
        words = _differences(policies[chosen], policies[other])
        if words:
            told = ", ".join(f"{plain.line(name)} {_SIGNS[word][0]}" for name, word in words.items())
            click.echo(click.style(f"  By --release-fail {other} it would be otherwise: {told}.", fg="yellow"))


def _explain(result: _Result, number: int, name: str | None) -> None:
    from checkers.explain import explain

    if result.judgement is None or result.history is None:
        assert result.error is not None
        raise HistoryError(result.path, result.error.line, result.error.reason)
    verdicts = result.judgement.verdicts
    if name is None:
        name = _told_first(result.judgement)
        if name is None:
            click.echo("no verdict is false: there is nothing to explain (--verdict names one)")
            return
    elif name not in verdicts:
        raise UsageError(f"there is no verdict {name!r} (known: {', '.join(verdicts)})")
    findings = verdicts[name].findings
    if not findings:
        click.echo(f"{plain.line(name)} lists no finding: there is nothing to explain")
        return
    if number > len(findings):
        raise UsageError(
            f"{name} lists {len(findings)} finding{'' if len(findings) == 1 else 's'}, so there is no {number}"
        )
    click.echo(f"{plain.line(name)}, finding {number} of {_total(verdicts[name]):,}")
    file = result.file

    def lines(wanted: Iterable[int]) -> Mapping[int, Mapping[str, Any]]:
        from harness.report.files import read_lines

        return {} if file is None else read_lines(file, wanted)

    click.echo(explain(result.history, findings[number - 1], lines=lines))

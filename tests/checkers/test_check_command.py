"""`fencepost check`, as its users meet it: words for people, JSON for programs, exit codes for both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checkers import RULES, judge
from harness import cli
from harness.errors import FencepostError
from tests.checkers.make import grant, make

CASES = Path(__file__).parents[2] / "cases"
VALID, INVALID, UNKNOWN = (CASES / f"{name}.jsonl" for name in ("clean-handover", "redis-clock-jump", "too-few-grants"))
UNREADABLE = CASES / "rule-h6.jsonl"


def check(*arguments: object) -> Result:
    """Runs the command as `main` does, errors turned into their exit codes."""
    try:
        return CliRunner().invoke(cli.cli, ["check", *map(str, arguments)], catch_exceptions=False)
    except FencepostError as error:
        raise AssertionError(str(error)) from error


def as_json(*arguments: object) -> list[dict[str, Any]]:
    data = json.loads(check(*arguments, "--json").stdout)
    assert isinstance(data, list)
    return data


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        ([VALID], 0),
        ([INVALID], 1),
        ([UNREADABLE], 2),
        ([UNKNOWN], 3),
        ([VALID, UNKNOWN], 3),
        ([UNKNOWN, UNREADABLE], 2),
        ([UNREADABLE, INVALID, UNKNOWN, VALID], 1),
        ([Path("no/such/file.jsonl")], 2),
    ],
)
def test_exit_codes(paths: list[Path], code: int) -> None:
    """1 if any is false, else 2 if any can't be read, else 3 if any is unknown, else 0; with and without --json."""
    assert check(*paths).exit_code == code
    assert check(*paths, "--json").exit_code == code


def test_json_has_the_form_of_the_contract() -> None:
    """One object for each path, in their order, with exactly the keys that the contract names."""
    bad, unreadable = as_json(INVALID, UNREADABLE)
    assert set(bad) == {"path", "valid", "required", "verdicts", "events", "grants", "rules"}
    assert bad["rules"] == RULES
    assert bad["path"] == str(INVALID)
    assert bad["valid"] is False
    assert bad["events"] == len(INVALID.read_text().splitlines()) - 1
    assert set(bad["verdicts"]) >= {
        "exclusion", "lease", "fencing", "fenced", "damage", "linearizable", "progress", "faults",
    }  # fmt: skip
    for verdict in bad["verdicts"].values():
        assert verdict["valid"] in (True, False, "unknown")
        assert verdict["count"] >= len(verdict["findings"])
        assert isinstance(verdict["stats"], dict)
    (finding,) = bad["verdicts"]["exclusion"]["findings"]
    assert (finding["kind"], finding["lock"], finding["blame"]) == ("overlap", "lock", "service")
    assert finding["seconds"] > 0
    assert finding["text"].startswith("Contender")
    assert unreadable == {
        "path": str(UNREADABLE),
        "error": {"line": 3, "reason": unreadable["error"]["reason"]},
    }
    assert "still open" in unreadable["error"]["reason"]


def test_a_folder_is_a_trial(tmp_path: Path) -> None:
    """A PATH may be a folder with a history.jsonl; one without is told so."""
    folder = tmp_path / "trial"
    folder.mkdir()
    assert "without a history.jsonl" in as_json(folder)[0]["error"]["reason"]
    (folder / "history.jsonl").write_bytes(VALID.read_bytes())
    assert as_json(folder)[0]["valid"] is True
    assert as_json(folder)[0]["path"] == str(folder)


def test_a_folder_of_trials_is_all_of_them(tmp_path: Path) -> None:
    """A matrix' trials in its order, one that left no history among them; then others by name, and matrices in it."""
    folder = tmp_path / "many"
    folder.mkdir()
    trial(folder / "second", VALID)
    trial(folder / "first", INVALID)
    (folder / "logs").mkdir()
    assert [found["path"] for found in as_json(folder)] == [str(folder / "first"), str(folder / "second")]
    assert check(folder).exit_code == 1
    record = {"cells": [{"trial": "second"}, {"trial": "broken"}]}
    (folder / "matrix.json").write_text(json.dumps(record))
    second, broken, first = as_json(folder)
    assert (second["valid"], first["valid"]) == (True, False)
    assert broken["path"] == str(folder / "broken")
    assert "error" in broken
    assert as_json(tmp_path) == [second, broken, first]
    (folder / "matrix.json").write_text('{"cells": [1]}')
    bad, good = as_json(folder, VALID)
    assert bad["error"]["reason"] == "not the matrix.json of a matrix"
    assert good["valid"] is True


def trial(folder: Path, history: Path) -> None:
    folder.mkdir()
    (folder / "history.jsonl").write_bytes(history.read_bytes())


@pytest.mark.parametrize("notation", ["fencepost", "edn"])
def test_standard_input_and_pipes(tmp_path: Path, notation: str) -> None:
    """`-` reads standard input, whatever it is written in; a pipe as a PATH can be read as well."""
    text = INVALID.read_text()
    if notation == "edn":
        text = CliRunner().invoke(cli.cli, ["export", "edn", str(INVALID), "-"]).stdout
        assert text.startswith(";; fencepost {")
    result = CliRunner().invoke(cli.cli, ["check", "-", "--json"], input=text)
    (found,) = json.loads(result.stdout)
    assert (result.exit_code, found["path"], found["valid"]) == (1, "-", False)
    assert found["verdicts"]["lease"]["count"] == as_json(INVALID)[0]["verdicts"]["lease"]["count"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(pipe.write_text, text)
        assert as_json(pipe)[0] == {**found, "path": str(pipe)}
        writing.result(timeout=60)


def test_an_error_of_standard_input_names_it() -> None:
    """Not the temporary file that it was kept in."""
    with pytest.raises(FencepostError, match=r"^-:1: not JSON"):
        CliRunner().invoke(cli.cli, ["check", "-", "--explain", "1"], input="{", catch_exceptions=False)


def test_require() -> None:
    """What the caller requires makes the word; an unknown name is a usage error that lists the known ones."""
    assert as_json(INVALID, "--require", "faults,fencing")[0]["required"] == ["faults", "fencing"]
    assert check(INVALID, "--require", "fencing").exit_code == 0
    with pytest.raises(AssertionError, match=r"no verdict 'leese' \(known: exclusion"):
        check(INVALID, "--require", "leese")


def test_a_meta_that_requires_what_is_not_there(tmp_path: Path) -> None:
    """Is the history's own fault: an error of its first line, and the other paths are judged."""
    path = tmp_path / "history.jsonl"
    path.write_text('{"type": "meta", "require": ["leese"]}\n')
    bad, good = as_json(path, VALID)
    assert bad["error"]["line"] == 1
    assert "leese" in bad["error"]["reason"]
    assert good["valid"] is True


def test_certificates() -> None:
    """Are in the JSON when asked for, and else not."""
    with_them = as_json(VALID, "--certificates")[0]["verdicts"]["linearizable"]["certificate"]
    assert [len(lock["order"]) for lock in with_them["locks"]] == [as_json(VALID)[0]["grants"]]
    assert "certificate" not in as_json(VALID)[0]["verdicts"]["linearizable"]


def test_no_owners() -> None:
    """The same history as a mutex that any process may release."""
    judged = as_json(VALID, "--no-owners")[0]
    assert judged["verdicts"]["lease"]["valid"] == "unknown"
    assert judged["verdicts"]["linearizable"]["valid"] is True
    assert "lease" not in judged["required"]


def test_people_get_the_first_finding_in_words() -> None:
    """A table of all verdicts, and under it what went wrong, with the lines to look at."""
    output = check(CASES / "gc-pause-statement-job.jsonl").output
    assert "blame service or library (lines" in check(INVALID).output
    assert "exclusion: overlap, blame pause (lines 3, 10, 24)" in output
    assert "Contender 0 was frozen" in output


def test_people_get_the_reason_of_an_unknown() -> None:
    """What is missing is said in the table."""
    assert "only 1 of 3 grants have a token" in check(CASES / "rule-n12.jsonl").output


def test_a_true_that_rests_on_nothing_says_so() -> None:
    """`faults` is true where none was recorded, as of an imported history; the table and the JSON say so."""
    row = next(row for row in check(VALID).output.splitlines() if row.startswith("  faults"))
    assert row.split(maxsplit=3) == ["faults", "true", "required", "no fault was recorded"]
    assert as_json(VALID)[0]["verdicts"]["faults"]["note"] == "no fault was recorded"
    assert "note" not in as_json(CASES / "gc-pause-statement-job.jsonl")[0]["verdicts"]["faults"]
    skipped = make((0, "nemesis", "info fault", {"phase": "start", "id": "f", "receipt": "skipped"}))
    assert judge(skipped).verdicts["faults"].note == "every fault was skipped"


def test_the_table_says_how_to_see_the_next() -> None:
    """Where there are several findings; `--verdict` only where it is needed."""
    output = check(CASES / "redis-failover-loses-acknowledged-writes.jsonl", "--require", "damage").output
    assert output.count("--explain 2") == 2
    assert "(1 of 2; --explain 2 shows the next)" in output
    assert "(1 of 2; --explain 2 --verdict linearizable shows the next)" in output


def test_explain_means_what_made_the_word() -> None:
    """Without `--verdict`: the first required verdict that is false, else the first. The exit code is the word's."""
    result = check(INVALID, "--explain", "2")
    assert result.output.splitlines()[0] == "lease, finding 2 of 2"
    assert result.exit_code == 1
    result = check(INVALID, "--explain", "1", "--require", "fencing")
    assert result.output.splitlines()[0] == "exclusion, finding 1 of 1"
    assert result.exit_code == 0


def test_explain_shows_the_events_in_columns() -> None:
    """The events around a finding, its own marked, one column for each contender, times relative to the first."""
    result = check(CASES / "gc-pause-statement-job.jsonl", "--explain", "1", "--verdict", "exclusion")
    assert result.exit_code == 0
    rows = result.output.splitlines()
    header = next(row for row in rows if "contender 0" in row and "contender 1" in row)
    assert "faults" in header
    marked = [row for row in rows if "▶" in row]
    assert [row.split()[2].rstrip("▶") for row in marked] == ["3", "10", "24"]
    assert "+0.000 s" in marked[0]
    assert "acquire ok token 34" in marked[1]
    assert marked[1].index("acquire ok") == header.index("contender 1")
    assert any("freeze f1 starts (landed)" in row for row in rows)


def test_a_true_that_leaves_something_out_is_not_just_true() -> None:
    """What is false and not required stands in the first line, and is counted over many; the JSON keeps its word."""
    harmed, stray = CASES / "gc-pause-statement-job.jsonl", CASES / "consul-4935-zombie-renewer.jsonl"
    first = check(harmed).output.splitlines()[0]
    assert ": true of what was required; exclusion and damage are false, and not required (--require)  (26" in first
    assert "conduct is false, and not required" in check(stray).output.splitlines()[0]
    assert ": true  (" in check(VALID).output.splitlines()[0]
    assert ": FALSE  (" in check(INVALID).output.splitlines()[0]
    assert ": FALSE  (" in check(harmed, "--require", "damage").output.splitlines()[0]
    assert "damage        FALSE     not required  3 findings" in check(harmed).output
    unsure = check(harmed, "--require", "progress").output.splitlines()[0]
    assert ": unknown; exclusion and damage are false, and not required" in unsure
    assert check(harmed, stray, VALID, INVALID).output.splitlines()[-2:] == [
        "4 histories: 3 true, 1 FALSE",
        "In 2 of them verdicts are false that are not required, and the word leaves them out.",
    ]
    assert "In 1 of them" not in check(VALID, INVALID).output
    assert as_json(harmed)[0]["valid"] is True


def test_the_graver_finding_is_told_first(tmp_path: Path) -> None:
    """A grant inside a promise says more than the refusal that came of it; findings keep their numbers."""
    events = [
        *grant(0, 0, 0, ttl=20), (5, 0, "invoke renew"), (5, 0, "fail renew", {"held": False}),
        *grant(0, 4, 1, ttl=20), (6, 1, "invoke renew"), (6, 1, "ok renew"),
    ]  # fmt: skip
    path = tmp_path / "history.jsonl"
    rows = [(round(s * 1e9), p, *w.split(), *k) for s, p, w, *k in sorted(events, key=lambda event: event[0])]
    path.write_text("".join(json.dumps({"time": t, "process": p, "type": kind, "f": f, **(k[0] if k else {})}) + "\n"
                            for t, p, kind, f, *k in rows))  # fmt: skip
    lease = as_json(path)[0]["verdicts"]["lease"]
    kinds = [finding["kind"] for finding in lease["findings"]]
    number = kinds.index("early-grant")
    assert number > 0
    output = check(path).output
    assert 0 < output.index("lease 2: early-grant (") < output.index("lease 1: early-expiry (")
    assert kinds == ["early-expiry", "early-grant"]
    assert "--explain 2 --verdict lease" not in output, "all are told"


def test_each_kind_of_finding_is_told_once(tmp_path: Path) -> None:
    """What somebody else's late release led to is another kind of finding than that it succeeded."""
    output = check(CASES / "redis-py-415-steal-by-release.jsonl").output
    told = [line.split("(")[0].strip() for line in output.splitlines() if line.startswith("  lease ")]
    assert told[1:] == ["lease 1: double-grant", "lease 2: early-grant", "lease 3: early-expiry"]
    assert output.count("linearizable 1: ") == output.count("linearizable ") - 2 == 1, "it points to those"


def test_explaining_nothing_is_no_wrong_use() -> None:
    """A history without findings has nothing to explain, and its exit code is that of the check."""
    for path, code in ((VALID, 0), (CASES / "rule-n12.jsonl", 3)):
        result = check(path, "--explain", "1")
        assert result.exit_code == code == check(path).exit_code
        assert "no verdict is false: there is nothing to explain" in result.output
    result = check(INVALID, "--explain", "1", "--verdict", "progress")
    assert result.exit_code == 1
    assert "progress lists no finding" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([INVALID, "--explain", "9"], "lease lists 2 findings, so there is no 9"),
        ([INVALID, "--explain", "9", "--verdict", "exclusion"], "lists 1 finding, so there is no 9"),
        ([INVALID, "--explain", "1", "--json"], "not for --json"),
        ([VALID, "--require", ""], r"--require names no verdict \(known: exclusion"),
        ([VALID, "--require", " , "], "--require names no verdict"),
        ([VALID, "--certificates"], "--certificates goes with --json"),
        (["-", VALID, "-"], "give - once"),
        ([INVALID, "--explain", "1", "--verdict", "leese"], "no verdict 'leese'"),
        ([INVALID, VALID, "--explain", "1"], "one PATH"),
        ([INVALID, "--verdict", "lease"], "goes with --explain"),
    ],
)
def test_wrong_use_is_told(arguments: list[object], message: str) -> None:
    """A sentence that says what is wrong."""
    with pytest.raises(AssertionError, match=message):
        check(*arguments)


def test_every_finding_of_the_cases_can_be_explained() -> None:
    """Whatever the finding, there is a text with its lines marked."""
    explained = 0
    for path in sorted(CASES.glob("*.jsonl")):
        for judged in as_json(path):
            for name, verdict in judged.get("verdicts", {}).items():
                for number, finding in enumerate(verdict["findings"], 1):
                    output = check(path, "--explain", number, "--verdict", name).output
                    assert output.count("▶") == len(finding["events"]), (path, name, number)
                    explained += 1
    assert explained > 100


def test_policies_of_a_failed_release_that_differ_are_told(tmp_path: Path) -> None:
    """When another reading of its failed releases would judge an imported history otherwise, the output says so."""
    path = tmp_path / "history.edn"
    rows = [
        (0, "invoke", "acquire"), (0, "ok", "acquire"), (0, "invoke", "release"), (0, "fail", "release"),
        (1, "invoke", "acquire"), (1, "ok", "acquire"),
    ]  # fmt: skip
    path.write_text(
        "\n".join(
            f"{{:process {p}, :type :{t}, :f :{f}, :time {n * 1000}, :index {n}}}" for n, (p, t, f) in enumerate(rows)
        )
    )
    held = check(path, "--no-owners", "--release-fail", "held")
    assert held.exit_code == 1
    assert "By --release-fail released it would be otherwise: valid true, linearizable true" in held.output
    told = as_json(path, "--no-owners", "--release-fail", "held")[0]["release_fail"]
    assert told["policy"] == "held"
    assert told["differs"]["released"] == {"valid": True, "linearizable": True}


def test_head_does_not_turn_the_exit_code() -> None:
    """`| head -1` closes the pipe early; the exit code still is that of the verdicts."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    fencepost = Path(sys.executable).with_name("fencepost")
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(
            [fencepost, "check", VALID], stdout=closed, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr


def test_a_bug_in_reading_is_no_pass_and_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path gets an error with the traceback on stderr; the exit code isn't that of an invalid history."""
    from harness.history import native

    def fail(path: Path) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(native, "read", fail)
    result = check(VALID)
    assert result.exit_code == 2
    assert "a bug of Fencepost" in result.output


def test_on_a_narrow_terminal_nothing_is_wider_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads, notes and findings are cut between words, a note goes on below its own beginning."""
    path = CASES / "consul-4935-zombie-renewer.jsonl"
    whole = check(path).output
    monkeypatch.setattr("harness.commands.terminal.columns", lambda stream=None: 80)
    narrow = check(path).output
    assert max(map(len, whole.splitlines())) > 100
    assert [line for line in narrow.splitlines() if len(line) > 80 and " " in line.strip()] == []
    assert narrow.split() == whole.split()
    lines = narrow.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  progress"))
    at = lines[first].index("it was never")
    assert lines[first + 1].startswith(" " * at)
    assert lines[first + 1][at] != " "

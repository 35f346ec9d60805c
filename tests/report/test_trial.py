"""A trial's report: what it says, what it survives, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import checkers
from harness import registry
from harness.errors import ConfigError, HistoryError
from harness.history import read
from harness.report import files, words, write_trial
from harness.report.selection import FINDINGS
from harness.report.story import tell
from harness.report.timeline import draw
from tests.report.pages import Page, page_of
from tests.report.scenes import Scene, write_history, write_trial_folder

CASES = Path(__file__).parents[2] / "cases"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((CASES / "cases.toml").read_text())


@pytest.fixture(scope="module")
def naive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial of 60 s: five naive contenders, the holder frozen three times."""
    return write_trial_folder(tmp_path_factory.mktemp("trials") / "naive", Scene().run())


@pytest.fixture(scope="module")
def page(naive: Path) -> Page:
    assert write_trial(naive) == naive / "report.html"
    return page_of(naive / "report.html")


def test_a_trial_is_told_from_cell_to_command(page: Page) -> None:
    """The cell, the outcome, versions, the verdicts in words, the command that repeats it, the images."""
    for said in (
        "etcd · lock · freeze-holder",
        "as expected",
        "etcd 3.5.21",
        "Two contenders believed at once that they held the lock",
        "a pause of the earlier holder",
        "Every lease was kept for as long as it had been promised.",
        "fencepost run etcd --fault freeze-holder --seed 7 --naive",
        "fencepost/node:5d1c",
        "freeze holder → c2 · landed, undone",
    ):
        assert said in page.text, said


def test_every_finding_is_linked_to_its_place_on_the_timeline(naive: Path, page: Page) -> None:
    """Each false verdict's first finding, in its own words, has a link to pins that exist."""
    verdicts = json.loads((naive / "verdict.json").read_text())["verdicts"]
    false = {name: verdict for name, verdict in verdicts.items() if verdict["valid"] is False}
    assert set(false) == {"exclusion", "damage"}
    links = {attributes.get("href") for tag, attributes in page.tags if tag == "a"}
    for name, verdict in false.items():
        assert verdict["findings"][0]["text"] in page.text
        for number in range(1, len(verdict["findings"]) + 1):
            assert f"at-{name}-{number}" in page.ids()
            assert f"#at-{name}-{number}" in links


def test_links_within_the_page_lead_somewhere(page: Page) -> None:
    """No link and no sign of the drawing points at an id that isn't there."""
    targets = {
        str(attributes["href"])[1:] for _, attributes in page.tags if str(attributes.get("href")).startswith("#")
    }
    assert targets <= page.ids()


def test_the_page_loads_nothing(page: Page) -> None:
    """No source, style sheet, image or import from anywhere; the policy inside forbids it too."""
    assert not [
        tag
        for tag, attributes in page.tags
        if tag in ("link", "img", "iframe", "object", "embed") or "src" in attributes
    ]
    outside = [a["href"] for _, a in page.tags if a.get("href") and re.match(r"[a-z]+:|//", str(a["href"]))]
    assert outside == []
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'")


def test_the_page_is_small(naive: Path, page: Page) -> None:
    """A usual trial's report can be mailed."""
    assert (naive / "report.html").stat().st_size < 500_000


def test_logs_are_linked_relative_to_the_page(naive: Path, tmp_path: Path) -> None:
    """Also when the page is written elsewhere."""
    out = write_trial(naive, tmp_path / "elsewhere.html")
    links = [
        str(a["href"]) for tag, a in page_of(out).tags if tag == "a" and str(a.get("href")).endswith("service.log")
    ]
    assert links
    assert all((out.parent / link).resolve() == (naive / "logs" / "n1" / "service.log").resolve() for link in links)


@pytest.mark.parametrize("name", [name for name, case in EXPECTED.items() if not case.get("error")])
def test_every_recorded_case_makes_a_page_from_the_history_alone(name: str, tmp_path: Path) -> None:
    """And all who took part have their row. What is drawn in red is what the verdict counted."""
    path = CASES / f"{name}.jsonl"
    history = read(path)
    page = page_of(write_trial(path, tmp_path / "page.html"))
    for process in history.processes:
        assert f"contender {process}" in page.text
    judged = checkers.judge(history).verdicts["exclusion"]
    if history.meta.owners and not history.meta.uncertainty:  # which forgives some of what the stats count
        story = tell(history, path, None, files.Journal(), None)
        drawn = sum(overlap.end - overlap.start for overlap in story.overlaps)
        assert drawn == pytest.approx(judged.stats["unsafe_seconds"], abs=1e-6)


@pytest.mark.parametrize("name", [name for name, case in EXPECTED.items() if case.get("error")])
def test_a_malformed_case_makes_no_page(name: str, tmp_path: Path) -> None:
    """But the error that names its line."""
    with pytest.raises(HistoryError, match=rf"{name}\.jsonl:\d+: "):
        write_trial(CASES / f"{name}.jsonl", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("case", "sentences"),
    [
        ("consul-4935-zombie-renewer", ["A contender acted on a lock that it did not believe to hold.",
                                        "Contender 0 noticed that it had lost lock 'lock' (it had lost its connection)",
                                        "No stretch in which the lock was free, wanted and undisturbed was longer than",
                                        "the longest wait of anybody was 388.000 s, in vain, of contender 1 (line 8)",
                                        "longest wait of anybody 388.0 s"]),
        ("audit-ghost", ["The unfenced resource was harmed: 1 refused write that is there.",
                         "the unfenced resource was read as a whole, 2 writes found"]),
        ("audit-at-that-instant", ["1 acknowledged write that is gone"]),
        ("outside-paused-holder", ["Faults: outside (paused).", "somebody other than the nemesis interfered",
                                   "to blame: a pause of the earlier holder"]),
        ("outside-bit-is-no-verdict", ["it had no chance to matter"]),
        ("unseen-overlap", ["the service or the client: renewals that nobody saw", "Contender 0 renews in silence"]),
        ("cut-off", ["The history is not whole", "the end line that its meta promises is missing",
                     "The history is cut off, so that this can't be told.", "early-grant (1)"]),
    ],
)  # fmt: skip
def test_what_is_new_is_told_in_words(case: str, sentences: list[str], tmp_path: Path) -> None:
    """Conduct, audits, what others did, silent renewals, and a history that is not whole."""
    text = " ".join(page_of(write_trial(CASES / f"{case}.jsonl", tmp_path / "page.html")).text.split())
    for sentence in sentences:
        assert sentence in text, text[:3000]


def test_stored_verdicts_are_used_and_not_judged_again(naive: Path, tmp_path: Path) -> None:
    """The report shows what verdict.json says, as long as it is as new as the history."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    verdict = json.loads((folder / "verdict.json").read_text())
    verdict["verdicts"]["exclusion"]["findings"][0]["text"] = "this very sentence was stored"
    (folder / "verdict.json").write_text(json.dumps(verdict))
    assert "this very sentence was stored" in page_of(write_trial(folder)).text


def test_verdicts_older_than_the_history_are_judged_again(naive: Path, tmp_path: Path) -> None:
    """A history that was put in place of another isn't shown with the other's verdicts."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    verdict = json.loads((folder / "verdict.json").read_text())
    verdict["verdicts"]["exclusion"]["findings"][0]["text"] = "this very sentence was stored"
    (folder / "verdict.json").write_text(json.dumps(verdict))
    later = (folder / "verdict.json").stat().st_mtime + 10
    os.utime(folder / "history.jsonl", (later, later))
    assert "this very sentence was stored" not in page_of(write_trial(folder)).text


def test_a_verdict_that_was_installed_since_is_judged(
    naive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plug-in's verdict is on the page of a trial that ran before it was there, as what it asks."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    (tmp_path / "greedy.py").write_text(
        '''"""greedy: did nobody hold the lock for *very* long?"""\n'''
        "from checkers import Verdict\n"
        "def check(model):\n    return Verdict(valid=False, findings=[], stats={'holds': len(model)})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    group = {**registry._group("verdicts"), "greedy": EntryPoint("greedy", "greedy:check", "fencepost.verdicts")}
    monkeypatch.setattr(registry, "_group", lambda kind: group)
    page = page_of(write_trial(folder))
    assert "Judged anew for this page: verdict.json does not know greedy" in page.text
    assert "did nobody hold the lock for very long?" in page.text
    assert "holds" in page.text
    assert "The verdict greedy" not in page.text


def test_a_verdict_file_that_tells_only_an_error_is_judged_again(naive: Path, tmp_path: Path) -> None:
    """What couldn't be read then can be read now."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    (folder / "verdict.json").write_text(json.dumps({"path": "x", "error": {"line": 1, "reason": "half a line"}}))
    assert "Every lease was kept" in page_of(write_trial(folder)).text


EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;b&gt;{{7*7}}</title></svg>"


def _poison(value: Any) -> Any:
    """The same shape with the hostile string in place of every string, and as a key besides."""
    if isinstance(value, dict):
        return {key: _poison(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_poison(each) for each in value]
    return EVIL if isinstance(value, str) else value


def test_hostile_strings_stay_text(tmp_path: Path) -> None:
    """Whatever a history, a journal, a configuration or an error says, the page gains no element and no script."""
    folder = write_trial_folder(tmp_path / "trial", Scene(seconds=30).run())
    trial = json.loads((folder / "trial.json").read_text())
    poisoned = _poison(trial)
    poisoned["nodes"] = {EVIL: {"role": EVIL, "addresses": [EVIL]}}
    poisoned["images"] = {EVIL: {"reference": EVIL, "id": EVIL, "origin": EVIL}, "other": EVIL}
    poisoned["versions"] = {EVIL: EVIL}
    poisoned["cell"]["parameters"] = {EVIL: EVIL}
    poisoned["config"] = {EVIL: [EVIL]}
    (folder / "trial.json").write_text(json.dumps(poisoned))
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    for line in lines[1:]:
        line["lock"] = EVIL
        if line["type"] == "fail":
            line["error"] = EVIL
        if line["f"] == "fault":
            line |= {"id": EVIL + line["id"], "targets": [EVIL]}
    write_history(folder / "history.jsonl", lines)
    (folder / "verdict.json").unlink()
    journal = [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()]
    for each in journal:
        each |= {"id": EVIL + each["id"], "target": EVIL, "reason": EVIL, "evidence": {EVIL: EVIL}}
    write_history(folder / "faults.jsonl", journal)
    (folder / "logs" / "<b>node").mkdir()
    (folder / "logs" / "<b>node" / '"><img src=x>.log').write_text("x")

    page = page_of(write_trial(folder))
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == 1
    assert not {"img", "b>node"} & set(names)
    assert not [a for _, a in page.tags for key in a if key.startswith("on")]
    assert "alert(1)" in page.text
    assert "49" not in [word.strip() for word in page.words]  # {{7*7}} was not evaluated


def test_a_long_history_is_summed_up_and_the_page_says_so(naive: Path) -> None:
    """Above the limit only what lies around findings is drawn one by one; the page tells which and how much."""
    checked = files.read_verdict(naive / "verdict.json")
    story = tell(read(naive), naive / "history.jsonl", files.read_trial(naive), files.read_journal(naive), checked)
    whole, capped = draw(story), draw(story, limit=300)
    assert whole.note is None
    assert capped.note is not None
    assert "too many to draw one by one" in capped.note
    assert "density" in capped.has
    drawn = str(capped.body).count("#write-")
    assert 0 < drawn < str(whole.body).count("#write-") / 2
    # The events of the first finding are drawn in full nevertheless.
    first = story.found[0]
    assert f"and {first.events[0].line}\n" in str(capped.body) or f"and {first.events[0].line}<" in str(capped.body)


def test_a_trial_that_failed_early_is_reported_with_its_error(tmp_path: Path) -> None:
    """Without any history the page still says what failed and how to repeat it."""
    (tmp_path / "trial.json").write_text(
        json.dumps(
            {
                "format": 1,
                "cell": {"system": "consul", "workload": "lock", "fault": "none", "parameters": {}},
                "repeat": "fencepost run consul",
                "outcome": {"word": "harness-error", "exit_code": 4, "reasons": ["no leader"]},
                "error": "consul never got healthy: no leader after 60 s",
            }
        )
    )
    page = page_of(write_trial(tmp_path))
    assert "consul never got healthy: no leader after 60 s" in page.text
    assert "harness error" in page.text
    assert "fencepost run consul" in page.text


def test_an_empty_history_makes_a_page_that_says_so(tmp_path: Path) -> None:
    """A meta alone: nobody did anything, and nothing is told as if all had been well."""
    write_history(tmp_path / "history.jsonl", [{"type": "meta", "format": 1, "ttl": 2.0}])
    text = page_of(write_trial(tmp_path)).text
    assert "unknown" in text
    assert "Nothing was recorded" in text
    for reassuring in ("never believed", "Tokens rose", "came to no harm", "Every fault", "Every lease was kept"):
        assert reassuring not in text


def test_a_trial_without_faults_does_not_speak_of_their_effect(tmp_path: Path) -> None:
    """True, because there was none."""
    text = page_of(write_trial(write_trial_folder(tmp_path, Scene(seconds=8, freezes=()).run(), fault="none"))).text
    assert "Every fault took effect" not in text
    assert text.count("No fault was applied.") == 2


def test_what_was_expected_and_why_stands_with_the_verdict(naive: Path, tmp_path: Path) -> None:
    """In the words of whoever expects it."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    trial = json.loads((folder / "trial.json").read_text())
    trial |= {"expect": {"damage": False}, "expect_reason": "naive clients do harm"}
    (folder / "trial.json").write_text(json.dumps(trial))
    assert "as expected false was expected: naive clients do harm" in page_of(write_trial(folder)).text


def test_what_nobody_could_expect_to_be_true_surprises_nobody(naive: Path, tmp_path: Path) -> None:
    """Where lease may be anything, linearizable may be too: the page flags what the outcome is made of, no more."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    verdict = json.loads((folder / "verdict.json").read_text())
    for name in ("lease", "linearizable"):
        verdict["verdicts"][name]["valid"] = False
    (folder / "verdict.json").write_text(json.dumps(verdict))
    trial = json.loads((folder / "trial.json").read_text())
    assert page_of(write_trial(folder)).text.count("not expected") == 2
    (folder / "trial.json").write_text(json.dumps(trial | {"expect": {"lease": "any"}}))
    assert "not expected" not in page_of(write_trial(folder)).text


def test_a_word_says_what_it_leaves_out(naive: Path, tmp_path: Path) -> None:
    """Two believers and damage are not required: the page says so at once, and not where they are spoken of."""
    told = "True of what was required; exclusion and damage are false, and not required."
    assert told in page_of(write_trial(naive, tmp_path / "page.html")).text
    folder = shutil.copytree(naive, tmp_path / "trial")
    trial = json.loads((folder / "trial.json").read_text())
    (folder / "trial.json").write_text(json.dumps(trial | {"expect": {"damage": False, "exclusion": False}}))
    assert "of what was required" not in page_of(write_trial(folder)).text


@pytest.mark.parametrize(
    "case", ["etcd3-py-99", "gc-pause-statement-job", "consul-1172-2xttl", "outside-paused-server"]
)
def test_a_page_of_a_history_alone_speaks_of_no_trial(case: str, tmp_path: Path) -> None:
    """Whoever recorded it had no trial, no twin of the resource, and faults of which nothing is known here."""
    text = page_of(write_trial(CASES / f"{case}.jsonl", tmp_path / "page.html")).text
    for wrong in ("trial", "twin", "No fault was applied", "repeat"):
        assert wrong not in text, wrong
    if case in ("etcd3-py-99", "consul-1172-2xttl"):
        assert text.count("No fault was recorded.") == 2


def test_the_graver_finding_is_quoted(naive: Path, tmp_path: Path) -> None:
    """With the place of its own, though another comes first in time."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    verdict = json.loads((folder / "verdict.json").read_text())
    finding = {"lock": "lock", "events": [5, 6]}
    lease = [
        {**finding, "kind": "early-expiry", "text": "Refused."},
        {**finding, "kind": "early-grant", "text": "Both."},
    ]
    verdict["verdicts"]["lease"] |= {"valid": False, "count": 2, "findings": lease}
    (folder / "verdict.json").write_text(json.dumps(verdict))
    page = page_of(write_trial(folder))
    assert "Both. show" in " ".join(page.text.split())
    quoted = [
        attributes["href"] for tag, attributes in page.tags if tag == "a" and "#at-lease" in str(attributes.get("href"))
    ]
    assert quoted[0] == "#at-lease-2"


def test_contenders_own_counts_are_shown(naive: Path, tmp_path: Path) -> None:
    """What isn't zero, and isn't in the table already."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    trial = json.loads((folder / "trial.json").read_text())
    trial["contenders"]["0"]["bye"] = {"acquires": 77, "polls": 1434, "sessions_given_up": 1, "renew_retries": 0}
    (folder / "trial.json").write_text(json.dumps(trial))
    text = page_of(write_trial(folder)).text
    assert "1,434 polls, 1 sessions given up" in text
    assert "77 acquires" not in text
    assert "retries" not in text


@pytest.mark.parametrize(
    ("iso", "said"),
    [
        ("2026-11-29T21:25:13.067+00:00", "2026-11-29 21:25:13 UTC"),
        ("2026-11-29T21:25:13+02:00", "2026-11-29 19:25:13 UTC"),
        ("some day", "some day"),
    ],
)
def test_when_it_ran_is_told_for_people(iso: str, said: str) -> None:
    assert words.moment(iso) == said


def test_the_label_of_a_short_fault_stands_beside_its_bar(naive: Path) -> None:
    """Inside only where there is room; shortened where there is none on either side."""
    story = tell(read(naive), naive / "history.jsonl", files.read_trial(naive), files.read_journal(naive), None)
    fault = story.faults[0]
    middle = story.start + story.seconds / 2

    def label(start: float, stop: float, target: str) -> str:
        struck = replace(fault, start=start, stop=stop, targets=[target])
        names = re.findall(r"<text[^>]*fault-name[^>]*>[^<]*", str(draw(replace(story, faults=[struck])).body))
        (name,) = names
        return name

    early, late = label(story.start, story.start + 0.1, "c2"), label(story.end - 0.2, story.end - 0.1, "c2")
    assert 'x="0.1' in early
    assert "landed, undone" in early
    assert 'text-anchor="end"' in late
    inside = label(story.start, story.end, "c2")
    assert "keep" in inside
    assert "landed, undone" in inside
    assert label(middle, middle + 0.1, "a node with a name that is very, very long").endswith(">freeze holder")


def test_a_limit_on_pins_is_told_where_it_applies(naive: Path) -> None:
    """So that nobody takes the flags for all that was found."""
    checked = files.read_verdict(naive / "verdict.json")
    story = tell(read(naive), naive / "history.jsonl", files.read_trial(naive), files.read_journal(naive), checked)
    assert "Flags and pins" not in (draw(story).note or "")
    first = next(found for found in story.found if found.verdict == "damage")
    many = [replace(first, number=number, anchor=f"damage-{number}") for number in range(1, FINDINGS + 2)]
    drawing = draw(replace(story, found=many))
    assert f"Flags and pins are for the first {FINDINGS} findings of damage." in str(drawing.note)
    assert str(drawing.body).count('class="hit flag"') == FINDINGS


def test_a_verdict_file_is_not_rewritten(naive: Path, tmp_path: Path) -> None:
    """The page is made; the record stays."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    before = (folder / "verdict.json").read_bytes()
    write_trial(folder, again=True)
    assert (folder / "verdict.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "error", "said"),
    [
        ("trial.json", '{"cell": {"system": 5}}', ConfigError, ["trial.json", "cell.system", "str"]),
        ("trial.json", '{"phases": [{"name": "x", "start": "soon"}]}', ConfigError, ["phases[0].start", "int"]),
        ("trial.json", "{", ConfigError, ["trial.json", "not JSON"]),
        ("trial.json", "[" * 100_000, ConfigError, ["trial.json"]),
        ("verdict.json", '{"verdicts": {"lease": {"valid": 1}}}', ConfigError, ["verdict.json", "valid"]),
        ("faults.jsonl", '\n{"id": "f1"}\n', HistoryError, ["faults.jsonl:2", "phase"]),
        ("faults.jsonl", '{"id": "f1", "phase": "middle"}\n', HistoryError, ["faults.jsonl:1", "middle"]),
        ("faults.jsonl", b"\xff\n", HistoryError, ["faults.jsonl:1", "not JSON"]),
        ("history.jsonl", '{"type": "meta"}\nnonsense\n', HistoryError, ["history.jsonl:2"]),
    ],
)  # fmt: skip
def test_a_malformed_file_is_an_error_that_names_file_and_key(
    tmp_path: Path, name: str, content: str | bytes, error: type[Exception], said: list[str]
) -> None:
    """And no page is written."""
    write_history(tmp_path / "history.jsonl", [{"type": "meta", "format": 1}])
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error) as caught:
        write_trial(tmp_path)
    for part in said:
        assert part in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_a_verdict_that_names_a_missing_line_is_an_error(naive: Path, tmp_path: Path) -> None:
    """Verdicts of another history would point anywhere."""
    folder = shutil.copytree(naive, tmp_path / "trial")
    verdict = json.loads((folder / "verdict.json").read_text())
    verdict["verdicts"]["exclusion"]["findings"][0]["events"] = [10**6]
    (folder / "verdict.json").write_text(json.dumps(verdict))
    with pytest.raises(HistoryError, match=r"history\.jsonl:1000000: verdict\.json names this line"):
        write_trial(folder)


def test_no_history_is_an_error(tmp_path: Path) -> None:
    """Unless the trial says that it failed."""
    (tmp_path / "trial.json").write_text("{}")
    with pytest.raises(HistoryError, match=r"history\.jsonl: no such file"):
        write_trial(tmp_path)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_the_script_runs_and_shows_a_finding_in_place(naive: Path, page: Page, tmp_path: Path) -> None:
    """In a real browser: the page at a finding's address shows its pins, zoomed in, with its words beneath."""
    assert CHROMIUM is not None
    address = (naive / "report.html").as_uri() + "#at-damage-1"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=4000"]
    run = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", address], capture_output=True, text=True, timeout=90, check=True
    )
    assert re.search(r'<html[^>]* class="js"', run.stdout)
    assert re.search(r'id="at-damage-1" class="finding on"', run.stdout)
    panel = run.stdout[run.stdout.index('class="focus on"') :]
    assert "damage 1" in panel[:2000]
    width = re.search(r'class="wide" style="width: ([\d.]+)%', run.stdout)
    assert width is not None
    assert float(width[1]) > 300

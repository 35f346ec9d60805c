"""How far the machine was overcome: counted by the kernel, told where it may matter, deciding nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.trial import strain
from harness.trial.outcome import decide
from harness.trial.strain import Strain
from tests.trial.test_outcome import judgement

LINE = "some avg10=1.00 avg60=2.00 avg300=3.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
BUSY = "this machine was overloaded"


def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, seconds: float) -> float | None:
    file, clock = tmp_path / "cpu", [100.0]
    monkeypatch.setattr(strain, "PRESSURE", file)
    monkeypatch.setattr(strain.time, "monotonic", lambda: clock[0])
    file.write_text(before)
    counting = Strain()
    clock[0] += seconds
    file.write_text(after)
    share = counting.share()
    file.write_text(LINE.format(10**12))
    clock[0] += 1
    assert counting.share() == share, "it stays what it was"
    return share


def test_it_is_the_share_of_the_time_in_which_something_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = measured(tmp_path, monkeypatch, LINE.format(5_000_000), LINE.format(24_000_000), 20)
    assert share == pytest.approx(0.95)
    assert strain.words(share) is not None
    assert "for 95% of the time" in str(strain.words(share))
    assert strain.words(0.89) is None


@pytest.mark.parametrize("said", ["", "some avg10=1.00\n", "some total=many\n"])
def test_a_kernel_that_does_not_tell_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    share = measured(tmp_path, monkeypatch, said, LINE.format(1), 20)
    assert (share, strain.words(share)) == (None, None)
    monkeypatch.setattr(strain, "PRESSURE", tmp_path / "none")
    assert Strain().share() is None


def test_it_stands_beside_what_slowness_can_bring_about() -> None:
    counts = {"min_grants": 10, "min_handovers": 4, "handovers": 20, "strain": f"{BUSY}: by far"}

    def told(**verdicts: object) -> tuple[str, bool]:
        found = decide(judgement(**verdicts), expect={}, **counts)  # type: ignore[arg-type]
        return found.word, any(BUSY in reason for reason in found.reasons)

    assert told() == ("as-expected", False)
    assert told(progress=False) == ("violation", True)
    assert told(lease=False) == ("violation", False)
    assert told(faults="unknown") == ("unknown", True)
    few = decide(judgement(grants=3), expect={}, **counts)  # type: ignore[arg-type]
    assert (few.word, few.reasons[-1]) == ("inconclusive", f"{BUSY}: by far")

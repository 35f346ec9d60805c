"""The HTML reports: one page for a trial, one for a matrix. How to read them is in docs/report.md."""

from __future__ import annotations

from pathlib import Path


def load() -> None:
    """Load all that writing takes, pandas and jinja2 and what computes intervals: a second of a processor.

    Where trials run side by side this comes before them. Loaded at the end of the first, it kept the threads of all
    others from running for longer than a second, and their records said that the harness had stood still.
    """
    import scipy.special  # noqa: F401

    from harness.report import demo, matrix, trial  # noqa: F401


def write_trial(folder: Path, out: Path | None = None, *, again: bool = False) -> Path:
    """Writes a trial's report (`report.html` in its folder, or `out`) and returns its path.

    `folder` is a trial's folder (docs/layout.md) or a bare history; of a folder only the history is needed, and not
    even that when `trial.json` says that the trial failed. The stored verdicts are used unless they are missing, older
    than the history, or without a verdict that is registered now; `again` never uses them. The record itself is only
    read: verdict.json stays as it is. Raises HistoryError or ConfigError that names the file, and the line or key.
    """
    from harness.report.trial import write  # jinja2 and pandas cost 0.4 s that a trial shouldn't pay at its start

    return write(folder, out, again=again)


def write_matrix(folder: Path, out: Path | None = None) -> Path:
    """Writes a matrix's page (`index.html` in its folder, or `out`) and returns its path.

    Reads `matrix.json`, and of each trial its `verdict.json` where there is one. Raises ConfigError that names the file
    and the key.
    """
    from harness.report.matrix import write

    return write(folder, out)


def write_demo(folder: Path) -> Path:
    """Writes the page of `fencepost demo` (`demo.html` in the trial's folder) and returns its path.

    Raises HistoryError or ConfigError where there is no history of the statement job, or no count of what it came to.
    """
    from harness.report.demo import write

    return write(folder)

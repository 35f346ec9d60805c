"""Judging a long history takes so much memory for each event, and no more: a soak has tens of millions of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOST = 110
"""Bytes for each event of reading and judging. Of 30 million they are 57; where there are fewer, what the allocator
keeps counts more (87 here). It was twice as much when each column was whole and wide."""

FEW, MANY = 50_000, 450_000

JUDGING = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from checkers import judge
from harness.history import read
judgement = judge(read(sys.argv[1]))
assert judgement.valid is True, judgement
print(judgement.events, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def write(path: Path, events: int) -> None:
    """Holds of ten events each, by one contender after the other, as the benchmark's histories have them on average."""
    made = [
        ("acquire", "invoke", ""), ("acquire", "ok", ', "token": {0}, "ttl": 2.0, "lease_from": {1}'),
        ("renew", "invoke", ""), ("renew", "ok", ""),
        *(("write", "invoke", f', "resource": "{name}", "token": {{0}}, "read": {{2}}, "version": {{0}}')
          for name in ("fenced", "unfenced")),
        *(("write", "ok", f', "resource": "{name}", "seq": {{0}}') for name in ("fenced", "unfenced")),
        ("release", "invoke", ""), ("release", "ok", ""),
    ]  # fmt: skip
    hold = "".join(
        f'{{{{"time": {{1}}{at}00000, "process": {{3}}, "type": "{kind}", "f": "{f}", "lock": "lock"{more}}}}}\n'
        for at, (f, kind, more) in enumerate(made)
    )
    with path.open("w") as file:
        file.write('{"type": "meta", "format": 1, "ttl": 2.0, "progress_bound": 20.0}\n')
        file.writelines(hold.format(token, token, token - 1, token % 20) for token in range(1, events // 10 + 1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in KiB there")
def test_bytes_for_each_event(tmp_path: Path) -> None:
    """What 400,000 more of them take, in a process of its own."""
    peaks = []
    for events in (FEW, MANY):
        path = tmp_path / f"{events}.jsonl"
        write(path, events)
        done = subprocess.run([sys.executable, "-c", JUDGING, str(path)], capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        counted, peak = map(int, done.stdout.split())
        assert counted == events
        peaks.append(peak)
    each = (peaks[1] - peaks[0]) / (MANY - FEW)
    assert each < MOST, f"{each:.0f} bytes for each event; at {FEW:,} {peaks[0]:,}, at {MANY:,} {peaks[1]:,}"

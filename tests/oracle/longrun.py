"""Feed random histories to the oracle and to the checkers, and count where they agree.

    python -m tests.oracle.longrun --histories 100000 --seed 1

Prints how often each word and each kind of finding occurred (a value that never occurs was never tested), and every
history on which the two disagree, with its own seed. Exit code 1 when there was one. A run that is broken off (Ctrl-C,
SIGTERM) ends its history, says what it has seen so far, and exits with 130.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.oracle.compare import disagreements, ours
from tests.oracle.generate import Chooser, encode, encode_doubled, history
from tests.oracle.malformed import corrupt
from tests.oracle.reading import Malformed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next has the next number")
    parser.add_argument("--stop-after", type=int, default=20, help="disagreements to show before giving up")
    arguments = parser.parse_args()

    words: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    disagreed, began, number = 0, time.monotonic(), 0
    broken_off = False

    def break_off(*_: object) -> None:
        nonlocal broken_off
        broken_off = True

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, break_off)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        for number in range(1, arguments.histories + 1):
            if broken_off:
                number -= 1
                break
            seed = arguments.seed + number - 1
            choices = Chooser.seeded(seed)
            events = history(choices)
            data = encode(events)
            odd = choices.pick(100)
            if odd < 6:
                data = corrupt(choices, events)
            elif odd < 9:
                data = encode_doubled(choices, events)
            judgement = ours(data)
            found = disagreements(data, path, judgement)
            if found:
                disagreed += 1
                print(f"--- seed {seed}\n{data.decode(errors='replace')}" + "\n".join(found), flush=True)
                if disagreed >= arguments.stop_after:
                    break
            if isinstance(judgement, Malformed):
                words["malformed"] += 1
                continue
            words[f"valid {judgement.valid}"] += 1
            for name, verdict in judgement.verdicts.items():
                words[f"{name} {verdict.valid}"] += 1
                for finding in verdict.findings:
                    kinds[f"{name} {finding.kind} {finding.blame or ''}".strip()] += 1
    for title, counts in (("words", words), ("findings", kinds)):
        print(f"\n{title}")
        for name, count in sorted(counts.items()):
            print(f"  {count:8d}  {name}")
    seconds = time.monotonic() - began
    last = arguments.seed + number - 1
    print(f"\n{number} histories (seeds {arguments.seed} to {last}) in {seconds:.0f} s: {disagreed} disagreements")
    return 1 if disagreed else 130 if broken_off else 0


if __name__ == "__main__":
    sys.exit(main())

"""Lock histories of any length, from a seed: contenders acquire, renew, write, release; some outcomes are unknown.

The service is right, so every verdict that can be is true; what is measured is the way through all events. Times are
ns, tokens rise, every write of the holder goes to both resources, and of all operations a share ends as `info`.
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

MS = 1_000_000
TTL = 2.0


def write(path: Path, events: int, *, contenders: int = 20, info: float = 0.01, seed: int = 1) -> None:
    """Writes a history of `events` events, after its meta line; compressed where the name ends in .gz or .zst."""
    with _opened(path) as file:
        file.write(f'{{"type": "meta", "format": 1, "system": "simulated", "ttl": {TTL}, "progress_bound": 20.0}}\n')
        file.writelines(islice(lines(contenders, info, seed), events))


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", compresslevel=3)
    if path.suffix == ".zst":
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        return zstd.open(path, "wt")
    return path.open("w")


def lines(contenders: int, info: float, seed: int) -> Iterator[str]:
    """The events without end, in order of time.

    One hold after the other: the holder renews, writes and releases, while the others' acquires wait or time out.
    """
    rng = random.Random(seed)
    now, token, version, seq = 0, 0, 0, 0
    waiting: list[int] = []
    idle = list(range(contenders))
    rng.shuffle(idle)

    def event(kind: str, f: str, process: int, extra: str = "") -> str:
        return f'{{"time": {now}, "process": {process}, "type": "{kind}", "f": "{f}", "lock": "lock"{extra}}}\n'

    while True:
        # Some more begin to wait.
        for _ in range(rng.randint(1, 3) if idle else 0):
            if idle:
                now += rng.randint(1, 2 * MS)
                process = idle.pop()
                waiting.append(process)
                yield event("invoke", "acquire", process)
        if not waiting:
            continue
        holder = waiting.pop(rng.randrange(len(waiting)))
        now += rng.randint(1, 5 * MS)
        if rng.random() < info:
            yield event("info", "acquire", holder)
            idle.insert(rng.randrange(len(idle) + 1), holder)
            continue
        token += rng.randint(1, 3)
        lease_from = now - rng.randint(0, MS)
        yield event("ok", "acquire", holder, f', "token": {token}, "ttl": {TTL}, "lease_from": {lease_from}')
        for _ in range(rng.randint(0, 2)):
            now += rng.randint(1, 100 * MS)
            yield event("invoke", "renew", holder)
            now += rng.randint(1, 5 * MS)
            yield event("info" if rng.random() < info else "ok", "renew", holder)
        for _ in range(rng.randint(0, 2)):
            seq += 1
            read, version = version, version + 1
            for resource in ("fenced", "unfenced"):
                now += rng.randint(1, 20 * MS)
                made = f', "resource": "{resource}", "token": {token}, "read": {read}, "version": {version}'
                yield event("invoke", "write", holder, made)
            for resource in ("fenced", "unfenced"):
                now += rng.randint(1, 5 * MS)
                if rng.random() < info:
                    yield event("info", "write", holder, f', "resource": "{resource}"')
                else:
                    yield event("ok", "write", holder, f', "resource": "{resource}", "seq": {seq}')
        now += rng.randint(1, 10 * MS)
        yield event("invoke", "release", holder)
        now += rng.randint(1, 5 * MS)
        yield event("info" if rng.random() < info else "ok", "release", holder)
        idle.insert(rng.randrange(len(idle) + 1), holder)

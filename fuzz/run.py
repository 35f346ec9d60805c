"""Coverage-guided fuzzing of the readers: any bytes give verdicts, or an error that names the line.

    pip install -e .[fuzz]
    python fuzz/run.py native -max_total_time=600
    python fuzz/run.py edn -max_total_time=600
    python fuzz/run.py jepsen-json -max_total_time=600

What follows the target goes to libFuzzer (`-help=1` lists it). The corpus grows in build/fuzz/TARGET, from the recorded
cases and a few random histories; bytes that break something are left in build/fuzz as crash-*, and
`python fuzz/run.py TARGET FILE` tries them again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["harness", "checkers"]):
    from checkers import judge
    from harness.errors import HistoryError, UsageError
    from harness.history import events, exports, imports, reader

TARGETS = ("native", "edn", "jepsen-json")
OPTIONS = {"owners": (None, False), "ttl": (None, 2.0), "release_fail": ("unknown", "held", "released")}


class Broken(Exception):
    """The readers or the checkers did what they must not do."""


def one(data: bytes, target: str, file: Path) -> None:
    """Reads and judges the bytes as `fencepost check` does. Raises whatever is not an answer or a proper refusal."""
    options = {}
    if target != "native":
        choice = data[0] if data else 0
        data = data[1:]
        for name, values in OPTIONS.items():
            options[name] = values[choice % len(values)]
            choice //= len(values)
    file.write_bytes(data)
    try:
        if target == "native":
            histories = {"": reader.read(file, format="fencepost")}
        else:
            histories = imports.readings(file, format=target, **options)
    except HistoryError as error:
        lines = data.count(b"\n") + 1
        if not 1 <= error.line <= lines:
            raise Broken(f"an error in line {error.line} of {lines}: {error.reason}") from error
        return
    for history in histories.values():
        try:
            judgement = judge(history, certificates=True)
        except UsageError:  # the meta requires a verdict that doesn't exist
            continue
        json.dumps(judgement.to_json(), ensure_ascii=False).encode()  # what check prints
        for name, verdict in judgement.verdicts.items():
            if "Traceback" in (verdict.note or ""):
                raise Broken(f"{name}: {verdict.note}")
            if verdict.valid is False and not verdict.findings:
                raise Broken(f"{name} is false without a finding")


def seeds(target: str, folder: Path) -> None:
    """Histories to start from: the recorded cases, and random ones with everything in them."""
    from tests.oracle.generate import Chooser, encode, history

    folder.mkdir(parents=True, exist_ok=True)
    natives = [path.read_bytes() for path in sorted((ROOT / "cases").glob("*.jsonl"))]
    natives += [encode(history(Chooser.seeded(seed))) for seed in range(40)]
    for number, native in enumerate(natives):
        data = native
        if target != "native":
            path = folder / "seed"
            path.write_bytes(native)
            try:
                read = reader.read(path, format="fencepost")
            except HistoryError:
                continue
            finally:
                path.unlink()
            data = bytes([number % 12]) + _foreign(read, target, header=number % 4 == 0)
        (folder / f"seed-{number}").write_bytes(data)


def _foreign(history: events.History, target: str, header: bool) -> bytes:
    import io

    from harness.history import edn

    file = io.StringIO()
    exports.to_edn(history, file)
    text = file.getvalue()
    if target == "edn":
        return (text if header else text.partition("\n")[2]).encode()
    return json.dumps([form.value for form in edn.forms(text)], indent=0).encode()


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python fuzz/run.py {{{','.join(TARGETS)}}} [FILE | libFuzzer options]")
    target, rest = sys.argv[1], sys.argv[2:]
    corpus = ROOT / "build" / "fuzz" / target
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history"
        if rest and Path(rest[0]).is_file():
            one(Path(rest[0]).read_bytes(), target, file)
            print(f"{rest[0]}: an answer or a proper refusal")
            return
        seeds(target, corpus)
        words = Path(__file__).with_name("words.dict")
        arguments = [sys.argv[0], str(corpus), f"-dict={words}", f"-artifact_prefix={corpus.parent}/", "-timeout=20"]
        atheris.Setup([*arguments, *rest], lambda data: one(data, target, file))
        atheris.Fuzz()


if __name__ == "__main__":
    main()

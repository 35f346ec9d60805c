"""Other people's histories: their notations, what they leave open, and what is said of a malformed one."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkers import judge
from harness.errors import HistoryError, UsageError
from harness.history import imports
from harness.history.events import NONE, TYPES, History

TWO = """\
{:type :invoke, :f :acquire, :process 0, :time 10, :index 0, :value nil}
{:type :ok, :f :acquire, :process 0, :time 20, :index 1, :value 7}
{:type :info, :f :start-partition, :process :nemesis, :time 25, :index 2, :value [:isolated {"n1" #{"n2"}}]}
{:type :invoke, :f :release, :process 0, :time 30, :index 3, :value nil}
{:type :ok, :f :release, :process 0, :time 40, :index 4, :value nil}
"""


def written(tmp_path: Path, text: str | bytes, name: str = "history.edn") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(history: History) -> list[tuple[Any, ...]]:
    """Line, time, process, type, f and token of each event."""
    return [
        (
            int(history.line[row]),
            int(history.time[row]),
            history.process_name(row),
            TYPES[history.type[row]],
            history.fs[history.f[row]],
            None if history.token[row] == NONE else int(history.token[row]),
        )
        for row in range(len(history))
    ]


def test_an_answer_that_proves_nothing_can_be_mapped(tmp_path: Path) -> None:
    """A service that answers ok for whatever it is asked is no witness against the next grant."""
    text = """\
{:type :invoke, :f :acquire, :process 0, :time 0}
{:type :ok, :f :acquire, :process 0, :time 1000000000}
{:type :invoke, :f :acquire, :process 1, :time 70000000000}
{:type :ok, :f :acquire, :process 1, :time 71000000000}
{:type :invoke, :f :release, :process 0, :time 72000000000}
{:type :ok, :f :release, :process 0, :time 73000000000, :checked false}
"""
    path = written(tmp_path, text, "history.edn")
    for fields, valid in ({}, False), ({"proves": "checked"}, True):
        assert judge(imports.read(path, ttl=60, fields=fields)).verdicts["lease"].valid is valid


EXPECTED = [
    (1, 10, 0, "invoke", "acquire", None),
    (2, 20, 0, "ok", "acquire", 7),
    (3, 25, "nemesis", "info", "nemesis start-partition", None),
    (4, 30, 0, "invoke", "release", None),
    (5, 40, 0, "ok", "release", None),
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("history.edn", TWO),
        ("history.edn", "[" + TWO.rstrip() + "]"),
        ("history.edn", TWO.replace("{:type", "#jepsen.history.Op{:type")),
        ("history.edn", "(" + TWO.replace("{:type", "#jepsen.history.Op {:type") + ")"),
        ("history", TWO),
        ("history", "; made by hand\n".replace("\n", "") + " \n" + TWO),
    ],
)
def test_the_shapes_of_edn_give_one_history(tmp_path: Path, name: str, text: str) -> None:
    """A map a line, a vector or list of maps, tagged operations: the same events, each with its own line."""
    history = imports.read(written(tmp_path, text, name))
    shift = text.splitlines().index(next(line for line in text.splitlines() if ":index 0" in line))
    assert rows(history) == [(line + shift, *rest) for line, *rest in EXPECTED]
    assert history.meta.expires is False
    assert history.meta.extra["import"]["format"] == "edn"


@pytest.mark.parametrize("colon", ["", ":"])
@pytest.mark.parametrize("array", [False, True])
def test_the_shapes_of_json_give_one_history(tmp_path: Path, array: bool, colon: str) -> None:
    """An array of operations or one a line, keywords with or without their colon."""
    lines = [
        f'{{"{colon}type": "{colon}{kind}", "{colon}f": "{colon}{f}", "{colon}process": {process}, '
        f'"{colon}time": {time}, "{colon}value": {value}}}'
        for kind, f, process, time, value in [
            ("invoke", "acquire", "0", 10, "null"),
            ("ok", "acquire", "0", 20, '{"fence": 7}'),
            ("info", "start-partition", f'"{colon}nemesis"', 25, '"x"'),
            ("invoke", "release", "0", 30, "null"),
            ("ok", "release", "0", 40, "null"),
        ]
    ]
    text = "[" + ",\n".join(lines) + "]" if array else "\n".join(lines)
    history = imports.read(written(tmp_path, text, "history.json"))
    assert rows(history) == EXPECTED
    assert history.meta.extra["import"]["format"] == "jepsen-json"


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("7", 7),
        ("{:fence 7, :token 8}", 7),
        ("{:token 8}", 8),
        ("nil", None),
        ('"n1"', None),
        ("true", None),
        ("[7]", None),
    ],
)
def test_a_token_is_the_value_or_in_it(tmp_path: Path, value: str, token: int | None) -> None:
    """A number, or a map with :fence or :token; nil may mean anything and is no token."""
    history = imports.read(written(tmp_path, TWO.replace(":value 7", f":value {value}")))
    assert rows(history)[1][-1] == token


def test_fields_are_mapped(tmp_path: Path) -> None:
    """Names of keys, of operations, and the way to a token inside a vector."""
    text = (
        TWO.replace(":f ", ":op ").replace(":time", ":ts").replace(":acquire", ":lock").replace(":release", ":unlock")
    )
    text = text.replace(":value 7", ':value ["n1" 7]')
    path = written(tmp_path, text)
    fields = imports.parse_fields(("f=op,time=:ts", "acquire=lock", "release=:unlock", "token=value.1"))
    assert rows(imports.read(path, fields=fields)) == EXPECTED
    with pytest.raises(UsageError, match="no field 'colour'"):
        imports.read(path, fields={"colour": "red"})
    with pytest.raises(UsageError, match="OURS=THEIRS"):
        imports.parse_fields(("time",))


def test_a_lock_can_be_told_from_the_value(tmp_path: Path) -> None:
    """Jepsen's independent tests put [key value] there."""
    text = TWO.replace(":value nil", ":value [:k1 nil]").replace(":value 7", ":value [:k1 7]")
    history = imports.read(written(tmp_path, text), fields={"lock": "value.0", "token": "value.1"})
    assert history.locks == ("k1",)
    assert rows(history)[1][-1] == 7


def test_without_times_the_index_stands_in(tmp_path: Path) -> None:
    """And a ttl means nothing then: no promise, and none of the durations."""
    without = "\n".join(line.split(", :time")[0] + "}" for line in TWO.splitlines())
    minus_one = "\n".join(line.split(", :time")[0] + ", :time -1}" for line in TWO.splitlines())
    for text in (without, minus_one):
        history = imports.read(written(tmp_path, text), ttl=5.0)
        assert history.time.tolist() == [0, 1, 2, 3, 4]
        assert history.meta.ttl is None
        assert history.meta.expires is True
        assert history.meta.extra["import"]["time"] == "index"


def test_a_ttl_makes_holds_expire(tmp_path: Path) -> None:
    """Where times are recorded a ttl is a promise; without one holds end only by their release."""
    path = written(tmp_path, TWO)
    assert (imports.read(path).meta.ttl, imports.read(path).meta.expires) == (None, False)
    assert (imports.read(path, ttl=2.0).meta.ttl, imports.read(path, ttl=2.0).meta.expires) == (2.0, True)


def test_a_process_that_goes_on_leaves_its_old_operation_pending(tmp_path: Path) -> None:
    """The late answer belongs to the newer operation; the older one has an unknown outcome."""
    text = """\
{:type :invoke, :f :acquire, :process 0, :time 10}
{:type :invoke, :f :acquire, :process 0, :time 20}
{:type :ok, :f :acquire, :process 0, :time 30, :value 1}
{:type :invoke, :f :acquire, :process 1, :time 40}
{:type :invoke, :f :release, :process 1, :time 50}
{:type :ok, :f :acquire, :process 1, :time 60, :value 2}
"""
    history = imports.read(written(tmp_path, text))
    assert rows(history) == [
        (1, 10, 0, "invoke", "acquire", None),
        (2, 20, 0, "info", "acquire", None),
        (2, 20, 0, "invoke", "acquire", None),
        (3, 30, 0, "ok", "acquire", 1),
        (4, 40, 1, "invoke", "acquire", None),
        (5, 50, 1, "invoke", "release", None),
        (6, 60, 1, "ok", "acquire", 2),
    ]
    assert history.mate.tolist() == [1, 0, 3, 2, 6, -1, 4]
    assert history.meta.extra["import"]["left pending"] == 1


def test_an_unpaired_info_says_nothing(tmp_path: Path) -> None:
    """Some clients log doubts as operations of their own."""
    history = imports.read(written(tmp_path, TWO + "{:type :info, :f :acquire, :process 3, :time 50}\n"))
    assert rows(history) == EXPECTED
    assert history.meta.extra["import"]["unpaired info"] == 1


FAILED = """\
{:type :invoke, :f :release, :process 1, :time 5}
{:type :fail, :f :release, :process 1, :time 6}
{:type :invoke, :f :acquire, :process 0, :time 10}
{:type :ok, :f :acquire, :process 0, :time 20}
{:type :invoke, :f :release, :process 0, :time 30}
{:type :fail, :f :release, :process 0, :time 40}
"""


@pytest.mark.parametrize(
    ("policy", "owners", "expected"),
    [
        ("held", True, [("fail", 6), ("invoke", 10), ("ok", 20), ("invoke", 30), ("fail", 40)]),
        ("released", True, [("info", 6), ("invoke", 10), ("ok", 20), ("invoke", 30), ("info", 40)]),
        ("unknown", True, [("info", 6), ("invoke", 10), ("ok", 20), ("invoke", 30), ("info", 40)]),
        ("held", False, [("fail", 6), ("invoke", 10), ("ok", 20), ("invoke", 30), ("fail", 40)]),
        ("released", False, [("fail", 6), ("invoke", 10), ("ok", 20), ("invoke", 20), ("ok", 40)]),
        ("unknown", False, [("info", 6), ("invoke", 10), ("ok", 20), ("invoke", 30), ("info", 40)]),
    ],
)
def test_a_failed_release_is_read_by_a_policy(
    tmp_path: Path, policy: str, owners: bool, expected: list[tuple[str, int]]
) -> None:
    """Without owners `released` says that the hold ended between the grant and the answer, if there was one."""
    history = imports.read(written(tmp_path, FAILED), release_fail=policy, owners=owners)
    assert [(kind, time) for _, time, _, kind, *_ in rows(history)][1:] == expected
    assert history.meta.extra["import"]["release_fail"] == policy
    assert history.meta.extra["import"]["failed_releases"] == 2
    assert history.meta.owners is owners


def test_an_older_release_may_still_be_open(tmp_path: Path) -> None:
    """Its answer comes after the next grant: it wasn't sent for that, and none can be moved to before its end."""
    text = """\
{:type :invoke, :f :release, :process 0, :time 10}
{:type :invoke, :f :acquire, :process 0, :time 20}
{:type :ok, :f :acquire, :process 0, :time 30}
{:type :fail, :f :release, :process 0, :time 40}
{:type :invoke, :f :release, :process 0, :time 50}
{:type :fail, :f :release, :process 0, :time 60}
"""
    history = imports.read(written(tmp_path, text), release_fail="released", owners=False)
    assert [row[3] for row in rows(history)] == ["invoke", "invoke", "ok", "fail", "invoke", "info"]


def test_the_word_of_the_service_outranks_the_policy(tmp_path: Path) -> None:
    """Where a field says whether it was held."""
    text = FAILED.replace(":time 40}", ":time 40, :held true}")
    history = imports.read(written(tmp_path, text), release_fail="released", fields={"held": "held"})
    assert [row[3] for row in rows(history)] == ["invoke", "info", "invoke", "ok", "invoke", "fail"]
    assert history.held.tolist()[-1] == 1


@pytest.mark.parametrize("owners", [True, False])
@pytest.mark.parametrize("start", [0, 300])
def test_whatever_processes_do_can_be_read(tmp_path: Path, owners: bool, start: int) -> None:
    """Clients that go on, ask twice, answer late or never: under no policy an error, and under each every operation."""
    path = tmp_path / "history.edn"
    for seed in range(start, start + 300):
        source = random.Random(seed)
        lines: list[str] = []
        open_ops: list[tuple[int, str]] = []
        for time in range(source.randrange(2, 30)):
            if open_ops and source.random() < 0.5:
                process, f = open_ops.pop(source.randrange(len(open_ops)))
                kind = source.choice(("ok", "ok", "fail", "info"))
            else:
                process, f, kind = source.randrange(3), source.choice(("acquire", "release")), "invoke"
                open_ops = [op for op in open_ops if op != (process, f)] + [(process, f)]
            lines.append(f"{{:type :{kind}, :f :{f}, :process {process}, :time {time // 2}}}")
        path.write_text("\n".join(lines))
        invoked = sum(":invoke" in line for line in lines)
        for history in imports.readings(path, owners=owners).values():
            assert int((history.type == 0).sum()) == invoked, path.read_text()


def test_every_reading_of_a_failed_release_can_be_had(tmp_path: Path) -> None:
    """The chosen one first; just that one where no release failed."""
    path = written(tmp_path, FAILED)
    assert list(imports.readings(path)) == ["unknown", "held", "released"]
    assert list(imports.readings(path, release_fail="held")) == ["held", "released", "unknown"]
    assert list(imports.readings(written(tmp_path, TWO))) == ["unknown"]
    with pytest.raises(UsageError, match="release-fail must be one of held, released, unknown"):
        imports.readings(path, release_fail="lost")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (TWO + "{:type :ok, :f :release, :process 0, :time 50}", 6, "release completed without an open invoke"),
        (TWO + "7", 6, "an operation must be a map, not 7"),
        (TWO.replace(":type :info", ":type :invok"), 3, "type must be one of invoke, ok, fail, info, not invok"),
        (TWO.replace(":process 0, :time 30", ":process [1], :time 30"), 4, "process must be an integer or a name"),
        (TWO.replace(":f :start-partition, ", ""), 3, "an operation without an f"),
        (TWO.replace(":time 20", ":time 20.5"), 2, "time must be an integer, not 20.5"),
        (TWO.replace(":time 40, ", ""), 5, "an operation without a time, where others have one"),
        (TWO.replace(":time 30", ":time 15"), 4, "the time of process 0 goes back from 20 (line 2) to 15"),
        (TWO.replace(":value 7}", ":value 7"), 2, "a map with a key that has no value|is never closed|where"),
        (TWO.encode() + b"\xff", 6, "not UTF-8"),
        (TWO.replace(":value 7", f":value {2**70}"), 2, "token"),
    ],
)
def test_what_is_wrong_is_told_by_line(tmp_path: Path, text: str | bytes, line: int, reason: str) -> None:
    """The line of the file and the reason."""
    with pytest.raises(HistoryError) as error:
        imports.read(written(tmp_path, text))
    assert re.search(reason.replace("(", r"\(").replace(")", r"\)"), error.value.reason), error.value.reason
    assert error.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('[{"type": "info"\n', 2, "not JSON"),
        ('[{"type": "info", "process": 0, "f": "x"}\n', 2, "the array of operations is never closed"),
        ('[{"type": "info", "process": 0, "f": "x"}\n {}]', 2, "a comma is missing"),
        ("[]\n[]", 2, "something follows the array"),
        ("[" * 100_000, 1, "not JSON that can be read"),
        ('[{"a":' + "1" * 5000 + "}]", 1, "not JSON"),
        ('[{"type": "info", "process": 0, "f": "x"},\n {"f": "\\ud800"}]', 2, "half of a surrogate pair"),
    ],
)
def test_malformed_json_is_told_by_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    """As for EDN."""
    with pytest.raises(HistoryError, match=reason) as error:
        imports.read(written(tmp_path, text, "history.json"))
    assert error.value.line == line


def test_an_empty_file_is_an_empty_history(tmp_path: Path) -> None:
    """Nothing happened; the verdicts say that they don't know."""
    history = imports.read(written(tmp_path, "[]"))
    assert len(history) == 0
    assert not np.any(history.time)

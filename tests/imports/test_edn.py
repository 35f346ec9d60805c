"""The EDN reader: what it reads, and that whatever it can't read gets a line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.history.edn import EdnError, Keyword, dumps, forms


def values(text: str, *, splice: bool = False) -> list[Any]:
    return [form.value for form in forms(text, splice=splice)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (":jepsen/ok", "jepsen/ok"),
        ("nil", None),
        ("true", True),
        ("-12N", -12),
        ("1.5e3", 1500.0),
        ("2.50M", 2.5),
        ("1/2", 0.5),
        ("##Inf", float("inf")),
        (r'"a\nb\u00e9\"\\"', 'a\nbé"\\'),
        (r"\newline", "\n"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r"\(", "("),
        ("(1 [2] #{3})", [1, [2], [3]]),
        ("{:a 1,, :b {}}", {"a": 1, "b": {}}),
        ('#inst "2020-01-01"', "2020-01-01"),
        ("#jepsen.history.Op{:f :x}", {"f": "x"}),
        ("#:jepsen{:a 1}", {"a": 1}),
        ("^{:line 1} [2]", [2]),
        ("[1 #_2 #_ #_ 3 4 5] ; [", [1, 5]),
    ],
)
def test_a_form_is_read(text: str, value: Any) -> None:
    """Every kind of form of the grammar, and those that Clojure prints besides."""
    assert values(text) == [value]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[1\n2\n", 1, "[ is never closed"),
        ("{:a 1\n}\n)", 3, ") closes nothing"),
        ("\n[1\n}", 3, "} where ] closes the [ of line 2"),
        ("\n{:a}", 2, "a map with a key that has no value"),
        ('1\n"abc', 2, "a string is never closed"),
        ("1\n\n 12x", 3, "'12x' is not EDN"),
        ("{[1] 2}", 1, "a map with a collection as its key"),
        ("[#_]", 1, "#_ of line 1 has nothing to apply to"),
        ("9" * 5000, 1, "a number with too many digits"),
        (r'"\q"', 1, r"\q in a string means nothing"),
        ("1/0", 1, "1/0 is not a number"),
        ('"a\\ud83d"', 1, "half of a surrogate pair, which is no character"),
    ],
)
def test_what_cannot_be_read_has_a_line(text: str, line: int, reason: str) -> None:
    """The error names the line of the fault and says what is wrong."""
    with pytest.raises(EdnError) as error:
        values(text)
    assert (error.value.line, error.value.reason) == (line, reason)


def test_a_vector_is_read_like_a_map_a_line() -> None:
    """Spliced, each value of the one vector has its own line; what follows the vector is refused."""
    text = "[{:a 1}\n {:a 2}\n]"
    assert [(form.line, form.value) for form in forms(text, splice=True)] == [(1, {"a": 1}), (2, {"a": 2})]
    assert values("{:a 1}\n{:a 2}", splice=True) == [{"a": 1}, {"a": 2}]
    for text in ("[1] [2]", '[1]:"unreadable"}'):  # the second was found by fuzzing
        with pytest.raises(EdnError, match="something follows"):
            values(text, splice=True)


def test_no_nesting_is_too_deep() -> None:
    """A hundred thousand brackets are read, or refused, without recursion."""
    deep = 100_000
    (value,) = values("[" * deep + "]" * deep)
    for _ in range(deep - 1):
        (value,) = value
    assert value == []
    with pytest.raises(EdnError, match="never closed"):
        values("[" * deep)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.from_regex(r"[a-z]{1,6}", fullmatch=True).map(Keyword)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(trees)
def test_what_is_written_is_read_back(value: Any) -> None:
    """`dumps` and `forms` are inverse to each other."""
    assert values(dumps(value)) == [value]


@given(st.text(alphabet='{}[]()#^_"\\:;,\n ab1-/.M', max_size=40))
def test_any_text_gives_values_or_a_line(text: str) -> None:
    """No text breaks the reader, and the line that it blames exists."""
    line = 1
    try:
        values(text, splice=True)
    except EdnError as error:
        line = error.line
    assert 1 <= line <= text.count("\n") + 1

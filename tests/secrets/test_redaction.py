"""What the redactor finds, in which shapes, and what it leaves whole."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import sys
import traceback
from urllib.parse import quote, quote_plus, urlencode

import markupsafe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import plain, redaction
from harness.redaction import MARK, Redactor
from harness.secrets import why_not

SECRET = "Tr1 \"cky'\\ &<ü\u200b>/+%=key"


def knowing(*secrets: str) -> Redactor:
    redactor = Redactor()
    for secret in secrets:
        redactor.know(secret)
    return redactor


SHAPES = {
    "plain": SECRET,
    "json": json.dumps({"error": SECRET}),
    "json in unicode": json.dumps([SECRET], ensure_ascii=False),
    "json in json": json.dumps({"line": json.dumps({"error": SECRET})}),
    "repr": repr(SECRET),
    "ascii": ascii(SECRET),
    "bytes": repr(SECRET.encode()),
    "url": "http://me:" + quote(SECRET, safe="") + "@host",
    "path": quote(SECRET),
    "query": urlencode({"q": SECRET}),
    "query in small letters": re.sub("%..", lambda code: code[0].lower(), quote_plus(SECRET)),
    "for people": plain.line(SECRET),
    "html": html.escape(SECRET),
    "jinja": str(markupsafe.escape(SECRET)),
    "hex": SECRET.encode().hex(),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 behind one": base64.b64encode(b"u" + SECRET.encode() + b"x").decode(),
    "basic auth": base64.b64encode(b"me:" + SECRET.encode()).decode(),
    "base64 for urls": base64.urlsafe_b64encode(b"a:b:" + SECRET.encode() + b":cd").decode(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_is_found_in_every_shape(shape: str) -> None:
    """In text and in bytes; what stands around it stays."""
    text = f"before {SHAPES[shape]} after"
    for found in (knowing(SECRET).text(text), knowing(SECRET).raw(text.encode()).decode()):
        assert found.startswith("before ")
        assert found.endswith(" after")
        assert MARK in found
        for piece in (SECRET, "Tr1", "cky", quote("ü"), base64.b64encode(SECRET.encode()).decode()[6:-6]):
            assert piece not in found, (shape, found)


def test_a_text_without_secrets_is_left_as_it_is() -> None:
    """The very object; and without any secret nothing is looked at."""
    text = "nothing to see " * 100
    assert knowing(SECRET).text(text) is text
    data = {"a": [1, 2.5, None, True, "x"]}
    assert Redactor().data(data) is data
    assert knowing(SECRET).data(data) == data


def test_data_stays_whole() -> None:
    """JSON is redacted value by value: a backslash before a secret is no reason for a broken line."""
    redactor = knowing("nAb3-secret")
    record = {
        "error": "\nAb3-secret",
        "nAb3-secret": ["x nAb3-secret y"],
        "time": 5,
        "deep": {"list": ("nAb3-secret",)},
    }
    assert redactor.data(record) == {"error": "\nAb3-secret", MARK: ["x *** y"], "time": 5, "deep": {"list": [MARK]}}
    deep: list[object] = ["nAb3-secret"]
    for _ in range(5000):
        deep = [deep]
    assert "nAb3" not in repr(redactor.data(deep))


@pytest.mark.parametrize("kept", range(6, len(SECRET)))
def test_a_secret_that_was_cut_is_found_at_the_ends_of_a_long_text(kept: int) -> None:
    """Errors are cut at 400 characters on their way to us, and logs to their last words."""
    around = "so much was said before " * 10
    assert knowing(SECRET).text(around + SECRET[:kept]) == around + MARK
    assert knowing(SECRET).text(SECRET[-kept:] + around) == MARK + around
    assert knowing(SECRET).raw((around + "Tr1 \"cky'").encode()) == around.encode() + b"***"


def test_lines_of_a_secret_that_has_several_are_found_alone() -> None:
    """A private key in a log comes line by line; its first and last line are everybody's."""
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\nBKcwggSj\n-----END PRIVATE KEY-----\n"
    redactor = knowing(pem)
    assert redactor.raw(b"2 MIIEvQIBADANBgkq") == b"2 ***"
    assert redactor.text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"
    assert redactor.text(json.dumps({"key": pem})) == '{"key": "***"}'


@given(st.text(min_size=8, max_size=40).filter(lambda text: why_not(text) is None), st.text(), st.text())
def test_no_secret_gets_through(secret: str, before: str, after: str) -> None:
    """Whatever it is made of, and whatever stands around it."""
    redactor = knowing(secret)
    assert secret not in redactor.text(before + secret + after)
    assert secret not in json.loads(json.dumps(redactor.data({"x": [before + secret + after]})))["x"][0]
    assert json.dumps(secret)[1:-1] not in redactor.text(json.dumps(before + secret + after))
    assert quote(secret, safe="") not in redactor.text(quote(before + secret + after, safe=""))


def test_the_terminal_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints and tracebacks; what else a stream can do is still there."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    redaction.guard_terminal()
    redaction.guard_terminal()
    redaction.know("Ab3-on-the-terminal")
    print("said Ab3-on-the-terminal", flush=True)
    sys.stdout.writelines(["Ab3-on-the-terminal\n"])
    try:
        raise RuntimeError("Ab3-on-the-terminal")
    except RuntimeError:
        traceback.print_exc()
    assert out.getvalue() == "said ***\n***\n"
    assert err.getvalue().endswith("RuntimeError: ***\n")
    assert "raise RuntimeError" not in out.getvalue()
    assert not sys.stdout.isatty()

"""Which values are secrets, what stands in their place, and where their values come from again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from harness import matrix, redaction, secrets
from harness.commands.options import given
from harness.commands.run import command
from harness.errors import ConfigError, UsageError
from harness.trial.config import TrialConfig, check_marks, from_mapping, resolve


def sealed(options: dict[str, Any], *marks: str) -> dict[str, Any]:
    """The options of a system, as they travel."""
    return secrets.seal({"system_options": options}, marks=marks)["system_options"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "db_password",
        "dbPassword",
        "PGPASSWORD",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "client-secret",
        "secret_key_base",
        "token",
        "auth_token",
        "authToken",
        "api_key",
        "apiKey",
        "apikey",
        "APIKey",
        "private-key",
        "key",
        "dsn",
        "postgres_dsn",
        "DSN_PRIMARY",
        "credentials",
        "requirepass",
    ],
)
def test_a_key_that_says_so_is_a_secret(key: str) -> None:
    """By its words, however they are put together."""
    assert secrets.is_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "keyspace",
        "keys",
        "key_prefix",
        "monkey",
        "turkey",
        "token_ttl",
        "tokens",
        "tokenizer",
        "persistence",
        "heartbeat_ms",
        "passive",
        "bypass",
        "compass",
        "hold_max",
    ],
)
def test_a_key_that_only_looks_like_it_is_none(key: str) -> None:
    """`key` and `token` count as the last word alone; a part of a word counts for nothing."""
    assert not secrets.is_secret(key)


def test_a_secret_in_the_open_is_replaced_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable that nobody has set; nested tables and lists too. What is no secret stays."""
    monkeypatch.setattr(secrets, "_given", {})  # a process that was given none before
    options = {"password": "Ab3-first-one", "persistence": "none", "auth": {"tls": {"key": "Ab3-second-one"}}}
    told = sealed(options)
    assert told == {
        "password": "env:FENCEPOST_SECRET_PASSWORD",
        "persistence": "none",
        "auth": {"tls": {"key": "env:FENCEPOST_SECRET_KEY"}},
    }
    assert sealed(told) == told
    assert secrets.reveal(told) == options
    assert secrets.variables(told) == ["FENCEPOST_SECRET_PASSWORD", "FENCEPOST_SECRET_KEY"]
    assert secrets.unset(secrets.variables(told)) == secrets.variables(told)


def test_two_values_of_one_key_have_two_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a variable that the environment has with another value is not taken."""
    monkeypatch.setattr(secrets, "_given", {})
    monkeypatch.setenv("FENCEPOST_SECRET_DB_TOKEN", "Ab3-somebody-else")
    one, other = sealed({"db_token": "Ab3-one-of-two"}), sealed({"db_token": "Ab3-two-of-two"})
    assert one == {"db_token": "env:FENCEPOST_SECRET_DB_TOKEN_2"}
    assert other == {"db_token": "env:FENCEPOST_SECRET_DB_TOKEN_3"}
    assert sealed({"db_token": "Ab3-one-of-two"}) == one
    assert secrets.reveal({"a": one, "b": other, "c": {"token": "env:FENCEPOST_SECRET_DB_TOKEN"}}) == {
        "a": {"db_token": "Ab3-one-of-two"},
        "b": {"db_token": "Ab3-two-of-two"},
        "c": {"token": "Ab3-somebody-else"},
    }


def test_a_mark_makes_a_secret_of_any_option() -> None:
    """Of all texts in it, where it is a table."""
    options = {"colour": "Ab3-the-colour", "shade": {"name": "Ab3-the-shade", "deep": True}, "other": "plain"}
    told = sealed(options, "colour", "shade")
    assert told == {
        "colour": "env:FENCEPOST_SECRET_COLOUR",
        "shade": {"name": "env:FENCEPOST_SECRET_NAME", "deep": True},
        "other": "plain",
    }
    assert secrets.reveal(told) == options


def test_a_url_with_a_password_is_a_secret_under_any_key() -> None:
    """The whole of it travels as a reference, and its password alone is redacted too, plain and quoted."""
    told = sealed({"where": "postgres://me:Ab3%2Fof-the-url@db:5432/x", "page": "https://example.org/a@b"})
    assert told == {"where": "env:FENCEPOST_SECRET_WHERE", "page": "https://example.org/a@b"}
    assert redaction.text("no login with Ab3%2Fof-the-url, that is Ab3/of-the-url") == "no login with ***, that is ***"
    sealed({"dsn": "host=db user=me password=Ab3-of-the-dsn"})
    assert redaction.text("password 'Ab3-of-the-dsn' refused") == "password '***' refused"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "it is empty"),
        ("Ab3-567", "too short to be redacted: a secret must have 8 characters at least"),
        ("redis-server", "too common to be redacted"),
        ("harness-error", "too common to be redacted"),
        ("linearizable", "too common to be redacted"),
        ("1234567890123456789012", "all digits"),
        (123456789, "a secret must be a text"),
        ("env:not a name", "env: must be followed by the name of an environment variable"),
        ("redis://me:redis@n1/0", "the password in it: it is too short"),
    ],
)
def test_what_cannot_be_kept_secret_is_refused_by_its_key(tmp_path: Path, value: Any, words: str) -> None:
    """Before anything is written: a record in which every "redis" is a *** would tell nothing. It isn't shown."""
    with pytest.raises(ConfigError, match=f"m.toml: axes.system_options.password: .*{words}") as caught:
        secrets.seal({"axes": {"system_options": [{"password": value}]}}, path=tmp_path / "m.toml")
    if len(str(value)) > 7:
        assert str(value) not in str(caught.value).replace(str(tmp_path), "")


def test_a_variable_that_is_not_set_is_named_with_file_and_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is started. One that holds what can't be redacted is refused as well."""
    path = tmp_path / "m.toml"
    path.write_text('[[cells]]\nsystem = "redis"\nsystem_options = { password = "env:UNSET_ONE" }')
    monkeypatch.delenv("UNSET_ONE", raising=False)
    with pytest.raises(ConfigError, match=r"m\.toml: cells\[1\]\.system_options\.password: .* UNSET_ONE is not set"):
        matrix.load(path)
    monkeypatch.setenv("UNSET_ONE", "short")
    with pytest.raises(ConfigError, match=r"password, from the environment variable UNSET_ONE: .*too short") as caught:
        matrix.load(path)
    assert "'short'" not in str(caught.value)
    monkeypatch.setenv("UNSET_ONE", "Ab3-is-set-now")
    assert matrix.load(path).cells[0].system_options == {"password": "env:UNSET_ONE"}


def from_words(*words: str) -> TrialConfig:
    """The config of a command line."""
    context = command.make_context("run", list(words))
    left = ("results", "name", "keep", "runtime_name")
    return from_mapping(given({key: value for key, value in context.params.items() if key not in left}))


def test_again_repeats_a_trial_without_telling_its_secrets() -> None:
    """In the line, in the config as it is written down and shown; and the line gives the same config."""
    value, colour = 'Ab3 "quoted" \\ one', "Ab3-blue"
    config = resolve(from_words("redis", "--system-option", f"password={value}", "--workload-option", "hold_max=2"))
    assert config.system_options["password"].startswith("env:FENCEPOST_SECRET_PASSWORD")
    for told in (config.repeat_command(), repr(config)):
        assert "Ab3" not in told
    assert resolve(from_words(*shlex.split(config.repeat_command())[2:])) == config
    marked = from_words("redis", "--secret", "colour", "--system-option", f"colour={colour}")
    assert "--secret colour" in marked.repeat_command()
    assert colour not in marked.repeat_command()
    assert from_words(*shlex.split(marked.repeat_command())[2:]) == marked


def test_a_password_is_taken_as_it_is_written() -> None:
    """No JSON: not the number that its digits would be, and with its own quotes."""
    config = from_words("redis", "--system-option", 'password="12345678"')
    assert secrets.reveal(config.system_options) == {"password": '"12345678"'}
    with pytest.raises(ConfigError, match=r"system_options\.password: .*all digits"):
        from_words("redis", "--system-option", "password=123456789")


def test_an_option_without_its_equals_sign_does_not_show_what_follows() -> None:
    """A typing error must not put a password into the log of a CI job; nor must a key that is given twice."""
    with pytest.raises(UsageError, match=r"--system-option \*\*\*: must look like KEY=VALUE"):
        from_words("redis", "--system-option", "password:Ab3-typo-one")
    with pytest.raises(UsageError, match="password is given twice") as caught:
        from_words("redis", "--system-option", "password=Ab3-1", "--system-option", "password=Ab3-2")
    assert "Ab3" not in str(caught.value)


def test_a_mark_that_fits_no_option_is_an_error() -> None:
    """With a typing error in the mark the value would be shown."""
    config = from_words("redis", "--secret", "persistance", "--system-option", "persistence=none")
    with pytest.raises(ConfigError, match="secrets: no option has the key 'persistance'; did you mean 'persistence'"):
        check_marks([config], path=None)


def test_a_matrix_file_has_no_secret_in_its_plan(tmp_path: Path) -> None:
    """Not in a cell, nor in what is left out with its rule, nor in an error about a rule; marks hold for all of it."""
    path = tmp_path / "m.toml"
    text = """
        [defaults]
        secrets = ["persistence"]
        [axes]
        system = ["redis"]
        system_options = [{ password = "Ab3-in-axes", persistence = "none" }, { password = "Ab3-left-out" }]
        [[leave_out]]
        when = { system_options = { password = "Ab3-left-out" } }
        rule = "known"
        """
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"axes\.system_options\.persistence: .*too short"):
        matrix.load(path)
    path.write_text(text.replace(', persistence = "none"', "").replace('secrets = ["persistence"]', ""))
    plan = matrix.load(path)
    assert [len(plan.cells), len(plan.left_out)] == [1, 1]
    assert "Ab3" not in repr(plan)
    path.write_text(
        path.read_text() + '[[expect]]\nwhen = { system_options = { password = "Ab3-fits-none" } }\nverdicts={}'
    )
    with pytest.raises(ConfigError, match=r"expect\[1\]\.when: fits no cell") as caught:
        matrix.load(path)
    assert "Ab3" not in str(caught.value)
    path.write_text('[defaults]\nsecrets = ["pasword"]\n[axes]\nsystem = ["redis"]')
    with pytest.raises(ConfigError, match=r"m\.toml: secrets: no option has the key 'pasword'"):
        matrix.load(path)

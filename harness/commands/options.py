"""Command-line options that `run` and `matrix` share, and turning `KEY=VALUE` into data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from harness import plain, secrets
from harness.errors import UsageError
from harness.runtime.base import Runtime
from harness.runtime.choice import AUTO, VARIABLE, choose
from harness.trial.holders import take_holder

F = TypeVar("F", bound=Callable[..., Any])


def pairs(flag: str, given: tuple[str, ...], marks: Sequence[str] = ()) -> dict[str, Any]:
    """`("offset=30", "mode=x")` -> `{"offset": 30, "mode": "x"}`: values are JSON where they are, else text.

    A secret (`marks` are keys that the user says are one) is the text as it stands, unless it is a table or a list.
    """
    result: dict[str, Any] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            shown = "***" if secrets.is_secret(item) else repr(item)
            raise UsageError(f"{flag} {shown}: must look like KEY=VALUE")
        if key in result:
            raise UsageError(f"{flag}: {key} is given twice")
        try:
            result[key] = json.loads(value)
        except (ValueError, RecursionError):
            result[key] = value
        if (key in marks or secrets.is_secret(key)) and not isinstance(result[key], (dict, list, bool, type(None))):
            result[key] = value  # a password of digits, or in quotes, is no number and no JSON
    return result


_OPTIONS = [
    click.option(
        "--client",
        metavar="CLIENT",
        help="The contenders' lock client: a name (`fencepost list clients`), a file of yours (./mylock.py, ./mylock), "
        "or a command ('java -jar lock.jar'). Default: the system's own.",
    ),
    click.option("--client-dir", metavar="DIR", help="The folder with that command's files; all of it is sent."),
    click.option(
        "--client-image", metavar="REF", help="The image your client lives in; --client is then a command in there."
    ),
    click.option(
        "--client-option", multiple=True, metavar="KEY=VALUE", help="What your client is told besides; env:NAME."
    ),
    click.option("--client-name", metavar="NAME", help="What your client is called in tables (default: its file's)."),
    click.option("--client-digest", metavar="DIGEST", help="Run your client only in the state that has this digest."),
    click.option("--contenders", type=int, metavar="N", help="How many contenders (default 5)."),
    click.option(
        "--holder",
        metavar="KIND",
        help="What contenders make of what they are told: guarded (they have a deadline of their own, too; the "
        "default), trusting (what the client says; the default with one of your own), naive (nothing), careless (they "
        "go on all the same).",
    ),
    click.option("--guarded/--naive", "guarded", default=None, help="Short for --holder guarded, --holder naive."),
    click.option("--ttl", type=float, metavar="SECONDS", help="The lease (default 2)."),
    click.option("--seed", type=int, metavar="N", help="Of all that is drawn by lot; drawn and recorded if not given."),
    click.option("--warmup", type=float, metavar="SECONDS", help="Without faults, at the start."),
    click.option(
        "--duration", type=float, metavar="SECONDS", help="With faults (default 20, or more for two of them)."
    ),
    click.option(
        "--fault-on",
        type=float,
        metavar="SECONDS",
        help="How long each fault lasts (default: so long that it bites on this system).",
    ),
    click.option("--fault-off", type=float, metavar="SECONDS", help="Between two faults, at least."),
    click.option("--schedule", multiple=True, metavar="KEY=VALUE", help="When faults come, e.g. kind=triggered."),
    click.option("--recovery", type=float, metavar="SECONDS", help="Without faults, at the end."),
    click.option(
        "--progress-bound",
        type=float,
        metavar="SECONDS",
        help="Longest acceptable wait for a free lock (default: what this system needs).",
    ),
    click.option(
        "--min-grants", type=int, metavar="N", help="With fewer grants it proves nothing: inconclusive (default 10)."
    ),
    click.option("--min-handovers", type=int, metavar="N", help="The same for hand-overs (default 4)."),
    click.option(
        "--uncertainty", type=float, metavar="SECONDS", help="By how much stamps of two processes may disagree."
    ),
    click.option(
        "--rate-tolerance", type=float, metavar="SHARE", help="By which share two clocks may run apart (default 0.001)."
    ),
    click.option(
        "--endpoints",
        metavar="HOST:PORT,…",
        help="Use the cluster that runs there, start none: only contenders are ours, and only they can be hit.",
    ),
    click.option(
        "--endpoint-option",
        multiple=True,
        metavar="KEY=VALUE",
        help="How to get in there: ca_file, cert_file, key_file, server_name, tls, user, password=env:NAME, token.",
    ),
    click.option("--system-option", multiple=True, metavar="KEY=VALUE", help="An option of the system."),
    click.option("--fault-option", multiple=True, metavar="KEY=VALUE", help="A parameter of the fault."),
    click.option("--workload-option", multiple=True, metavar="KEY=VALUE", help="A parameter of the workload."),
    click.option(
        "--secret", multiple=True, metavar="KEY", help="The value of this option is a secret, whatever its name."
    ),
    click.option("--image", multiple=True, metavar="NAME=REF", help="Use this image, e.g. etcd=REPOSITORY:TAG."),
    click.option("--expect", multiple=True, metavar="VERDICT=VALUE", help="Expect true, false, unknown or any."),
]
_REPEATS = [
    click.option(
        "--repeat", type=int, metavar="N", help="Run each trial N times, with seeds that follow from its one."
    ),
    click.option(
        "--until",
        multiple=True,
        metavar="KEY=VALUE",
        help="Stop that early: violations=N, runs=N, minutes=N; whichever comes first.",
    ),
]
HEADINGS = {
    "What to run": (
        "fault", "fault_option", "workload", "workload_option", "contenders", "holder", "guarded",
        "ttl", "seed",
    ),
    "A lock of your own": ("client", "client_dir", "client_image", "client_option", "client_name", "client_digest"),
    "The cluster": (
        "servers", "endpoints", "endpoint_option", "system_option", "secret", "image", "runtime_name",
    ),
    "The schedule": ("warmup", "duration", "fault_on", "fault_off", "schedule", "recovery"),
    "Judging": (
        "expect", "progress_bound", "min_grants", "min_handovers", "uncertainty", "rate_tolerance",
    ),
    "Several runs": ("repeat", "until", "time_", "resume", "jobs"),
    "Where": ("results", "name", "keep"),
}  # fmt: skip
"""What `--help` of `run` and `matrix` shows below which heading."""
FOLDER_NAME = re.compile(r"\w[\w.+-]{0,99}")


def folder_name(name: str) -> str:
    """A name for a folder inside the results. UsageError when it would be one elsewhere, or none."""
    if not FOLDER_NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}: up to 100 letters, digits and . _ + - are allowed, a letter or digit first")
    return name


PAIRS = {
    "system_option": "system_options",
    "fault_option": "fault_options",
    "workload_option": "workload_options",
    "endpoint_option": "endpoint_options",
    "client_option": "client_options",
    "image": "images",
    "schedule": "schedule",
    "expect": "expect",
    "until": "until",
}


def trial_options(function: F) -> F:
    """Adds the options of a trial to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def results_option(function: F) -> F:
    """Adds `--results`."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path),
        metavar="DIR",
        default=Path("results"),
        show_default=True,
        help="The folder of all results.",
    )(function)


def runtime_option(function: F) -> F:
    """Adds `--runtime`, as `runtime_name`; `chosen` makes a runtime of it."""
    return click.option(
        "--runtime",
        "runtime_name",
        default=AUTO,
        show_default=True,
        envvar=VARIABLE,
        metavar="NAME",
        help="Where nodes live: docker, local (namespaces of this machine), auto (Docker where an engine answers).",
    )(function)


def chosen(name: str) -> Runtime:
    """The runtime of that name. What `auto` took, and why, is said on stderr."""
    choice = choose(name)
    if choice.why is not None:
        click.echo(plain.line(f"runtime: {choice.words}"), err=True)
    return choice.runtime


def repeat_options(function: F) -> F:
    """Adds the options that say how many runs a cell gets."""
    for option in reversed(_REPEATS):
        function = option(function)
    return function


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def duration(flag: str, text: str) -> float:
    """`90s`, `30m`, `2h`, `1.5h` in seconds. UsageError for anything else."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smh])", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not seconds:
        raise UsageError(f"{flag} {text!r}: must be a time such as 90s, 30m or 8h")
    return seconds


def given(values: dict[str, Any]) -> dict[str, Any]:
    """What of the options was really given, by the keys of `TrialConfig`."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        if name in PAIRS:
            if value:
                result[PAIRS[name]] = pairs("--" + name.replace("_", "-"), value, values.get("secret") or ())
        elif name == "secret":
            if value:
                result["secrets"] = list(value)
        elif name == "guarded":
            if value is not None and values.get("holder") is not None:
                raise UsageError(f"--{'guarded' if value else 'naive'} and --holder: give one of them")
            result |= take_holder({name: value}) if value is not None else {}
        elif name == "endpoints":
            if value is not None:
                result["endpoints"] = [each.strip() for each in value.split(",")]
        elif value is not None:
            result[name] = value
    return result

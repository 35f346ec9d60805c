"""`fencepost new`: a skeleton that works as it is, to begin with, and its test."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from harness.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TAKEN = frozenset({"redis", "kazoo", "psycopg2", "requests", "fencepost_adapter", "workloads", "nemesis"})
"""Modules that a file of the same name would hide from itself: a program's own folder comes first on its path."""

_PART = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
MOST_NAME = 40
_TEMPLATE = ".in"
"""How the files in `skeletons/` end: they are no Python before their words are filled in."""
_TRY = {
    "system": "fencepost run {name} --duration 5",
    "fault": "fencepost run redis --fault {name}-holder",
    "verdict": "fencepost list verdicts",
}

_CLIENT = '''"""The lock of {name}, for Fencepost: `fencepost run redis --client ./{name}.py --fault freeze-holder`.

It works as it is, by redis-py, which is on the nodes already (so are kazoo, requests and psycopg2). Put your library in
its place; where that is a package, name it here, and take the first # of these three lines away:

# # /// script
# # dependencies = ["redis==5.0.1"]
# # ///
"""

import redis
from fencepost_adapter import Adapter, Fail, ok, run


class Lock(Adapter):
    library, version = "{name}", redis.__version__
    renewals = "asked"  # by renew() below; "told", "unseen" or "none" where the library does it otherwise
    tokens = False  # whether acquire() has a fencing token: ok(token=…)
    errors = {{  # how an error begins -> what it says of the request: it failed for certain, or nobody knows
        "busy": "fail",
        "LockNotOwnedError": "fail",
        "*": "info",
    }}

    def open(self, config):  # before the hello: no service need be there yet
        host, port = config.endpoints[0]
        self.redis = redis.Redis(host=host, port=port, socket_timeout=config.operation_seconds)
        self.name, self.ttl = config.lock, config.ttl

    def acquire(self, wait):
        self.lock = self.redis.lock(self.name, timeout=self.ttl, blocking_timeout=wait)
        if not self.lock.acquire():
            raise Fail("busy: held by another")
        return ok()

    def renew(self):
        return self.owned(lambda: self.lock.extend(self.ttl, replace_ttl=True))

    def release(self):
        return self.owned(self.lock.release)

    def owned(self, do):
        try:
            do()
        except redis.exceptions.LockNotOwnedError as error:
            raise Fail(f"LockNotOwnedError: {{error}}", held=False)  # held=False: the *service* said so
        return ok(proves=True)  # proves: the service says ok only where it was held until then


run(Lock)
'''

_TEST = '''"""{name}.py keeps the adapter protocol, and is right at a real Redis where nothing is broken.

`pytest {test}`; it needs what `fencepost run` needs (`fencepost doctor`, `fencepost images`).
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# The check begins on this machine: with the Python that runs this, which must have the library too.
ENVIRONMENT = {{**os.environ, "PATH": f"{{Path(sys.executable).parent}}:{{os.environ['PATH']}}"}}


def fencepost(*words):
    """A command, which must come to its end as expected."""
    command = [sys.executable, "-m", "harness", *words]
    done = subprocess.run(command, cwd=HERE, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_keeps_the_protocol():
    """Each rule of docs/adapters.md, at a Redis of its own."""
    fencepost("adapter", "check", "python3 {name}.py", "--dir", ".", "--system", "redis")


def test_it_is_right_where_nothing_is_broken(tmp_path):
    """One trial without faults."""
    words = ["run", "redis", "--client", "./{name}.py", "--results", str(tmp_path)]
    fencepost(*words, "--duration", "6", "--min-grants", "3", "--min-handovers", "1")
'''


@click.command()
@click.argument("kind", type=click.Choice(["client", "system", "fault", "verdict"]))
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where it is written (default: here).",
)
def command(kind: str, name: str, folder: Path) -> None:
    """Write a skeleton called NAME that works as it is, and its test. Nothing that is there is replaced.

    A client is a file; a system, a fault and a verdict are packages, in a folder of that name, to be installed beside
    Fencepost (docs/writing-a-system.md, docs/writing-a-fault.md, docs/writing-a-verdict.md).

    \b
    Examples:
      fencepost new client mylock
      fencepost run redis --client ./mylock.py --fault freeze-holder
      fencepost new system mylock
      fencepost new fault hiccup
      fencepost new verdict long-hold
    """
    if kind == "client":
        _client(name, folder)
    else:
        _package(kind, name, folder)


def _client(name: str, folder: Path) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be the name of a client: a small letter first, then small letters, digits and _"
        )
    if name in _TAKEN or name in sys.stdlib_module_names:
        raise UsageError(f"{name!r} is a module that the client may want to import, and would hide; take another name")
    test = f"test_{name}.py"
    texts = {f"{name}.py": _CLIENT, test: _TEST}
    for file in texts:
        if (folder / file).exists():
            raise UsageError(f"{folder / file} is there already")
    _write(folder, {file: text.format(name=name, test=test) for file, text in texts.items()})
    program = f"{folder / name}.py" if folder.is_absolute() else f"./{folder / name}.py"
    click.echo(f"try:  fencepost run redis --client {program} --fault freeze-holder")


def _package(kind: str, name: str, folder: Path) -> None:
    """A package that registers a part of this kind."""
    from harness import registry

    module = name.replace("-", "_")
    if not _PART.fullmatch(name) or len(name) > MOST_NAME:
        raise UsageError(
            f"{name!r} can't be the name of a {kind}: a small letter first, then small letters, digits and single -, "
            f"at most {MOST_NAME} characters"
        )
    if (folder / name).exists():
        raise UsageError(f"{folder / name} is there already")
    group = f"{kind}s"
    if name in registry.names(group):
        raise UsageError(f"there is a {kind} {name!r} already (`fencepost list {group}`); take another name")
    if kind == "fault" and (clash := _within(name, registry.names(group))) is not None:
        raise UsageError(f"{name!r} would be read as a target of the fault {clash!r}; take another name")
    if kind == "system" and name in registry.names("clients"):
        raise UsageError(f"there is a lock client {name!r} already (`fencepost list clients`); take another name")
    if keyword.iskeyword(module) or _importable(module):
        raise UsageError(f"{module!r} is a module that is here already, and a package of that name would hide it")
    words = {"NAME": name, "MODULE": module, "CLASS": "".join(part.capitalize() for part in name.split("-"))}
    words["UPPER"] = module.upper()
    _write(folder / name, dict(_filled(kind, words)))
    here = shlex.quote(str(folder / name) if folder.is_absolute() else f"./{folder / name}")
    click.echo(f"then: {shlex.quote(sys.executable)} -m pip install -e {here}")
    click.echo(f"      pytest {here}")
    click.echo(f"try:  {_TRY[kind].format(name=name)}")


def _within(name: str, kinds: Iterable[str]) -> str | None:
    """The kind whose target this one's name would be, or that would be one of this."""
    return next((kind for kind in kinds if name.startswith(f"{kind}-") or kind.startswith(f"{name}-")), None)


def _importable(module: str) -> bool:
    try:
        return module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return True  # something of that name is here, whatever is wrong with it


def _filled(kind: str, words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The files of a skeleton by their paths, with these words in them."""
    root = Path(__file__).with_name("skeletons") / kind
    for path in sorted(root.rglob(f"*{_TEMPLATE}")):
        name = path.relative_to(root).as_posix().removesuffix(_TEMPLATE).replace("MODULE", words["MODULE"])
        yield name, re.sub("@([A-Z]+)@", lambda found: words[found[1]], path.read_text())


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    try:
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
    except OSError as error:
        raise UsageError(f"{folder} can't be written to: {error.strerror}") from error
    for file in texts:
        click.echo(f"wrote {folder / file}")

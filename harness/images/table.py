"""What an image holds, as data: `docker/<name>/image.toml`, from which its Dockerfile and its file tree both follow.

A table names the image that it stands on, the steps that lead to what it holds, and how its program is meant to be
run. A step is one layer: first its files are copied, then one shell script does the rest, in this order: packages,
unpacked packages, removed paths, users, folders, links, further commands, the version. `script` writes that script, and
images and trees are made by the same one. (No Dockerfile is ever read for it: `harness.images.dockerfile` writes them.)
"""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

VERSION = re.compile(r"[0-9]+(?:[.-][0-9a-z]+)*")
"""What names a version: it becomes part of an image's name."""

SUITE = "trixie"
"""The release of Debian that all images are made of."""

FILE = "image.toml"
"""Name of a table in the folder of its image."""

VERSION_FILE = "/etc/fencepost-version"
"""Where an image notes the version of what is in it."""

STRING, LIST, MAPPING = "a string", "a list of strings", "strings by name"
TABLE, TABLES, NUMBER = "a table", "a list of tables", "a number"


@dataclass(frozen=True)
class User:
    """A system user with a group of the same name and number. `shell` "" is the system's default for such users."""

    name: str
    id: int
    home: str
    shell: str = ""


@dataclass(frozen=True)
class Folder:
    """A directory that is made; `mode` is octal."""

    path: str
    owner: str = "root"
    mode: str = "0755"


@dataclass(frozen=True)
class Step:
    """One layer of an image.

    `files`: path in the image's folder -> where it goes; a folder ends in "/", and its content goes. `settings`: names
    of variables that whoever builds passes on (where its pip finds packages). `suite`: a further suite of Debian that
    the packages may come from. `unpack`: packages of which only the files are wanted, without their dependencies.
    `run`: further shell commands, one a line. `version`: a command that prints the version of what is in the image.
    """

    note: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    suite: str = ""
    packages: tuple[str, ...] = ()
    unpack: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    users: tuple[User, ...] = ()
    folders: tuple[Folder, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    version: str = ""


@dataclass(frozen=True)
class Config:
    """How an image's program is run. What is left out is as in the image below."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""
    volumes: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    stop_signal: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Version:
    """Another version of what is in an image: `suite` and `packages` in the place of those of its first step."""

    name: str
    about: str
    suite: str
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """One image. `on` is the name of an image of ours, or the reference of one from outside (it has a ":").

    `release` is the version that it has, where it has others beside it (`versions`), each an image of its own.
    """

    name: str
    about: str
    on: str
    official: str
    steps: tuple[Step, ...]
    config: Config
    release: str = ""
    versions: tuple[Version, ...] = ()

    @property
    def below(self) -> str | None:
        """The name of the image of ours that it stands on; None for one from outside."""
        return None if ":" in self.on else self.on

    def variants(self) -> Iterator[Table]:
        """The same with the other versions of what is in it."""
        first, *rest = self.steps
        for each in self.versions:
            step = replace(first, suite=each.suite, packages=each.packages)
            name, steps = f"{self.name}-{each.name}", (step, *rest)
            yield replace(self, name=name, about=each.about, official="", steps=steps, release=each.name, versions=())


def read(folder: Path) -> Table | None:
    """The table in an image's folder; None where there is none (its Dockerfile was written by hand).

    Raises:
        ConfigError: the file isn't such a table; names the key.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        content = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(file, None, str(error)) from error
    reader = _Reader(file)
    kinds = dict.fromkeys(("about", "on", "official", "release"), STRING)
    kinds |= {"step": TABLES, "version": TABLES, "config": TABLE}
    top = reader.part("", content, kinds)
    if "on" not in top:
        raise ConfigError(file, "on", "is missing: the image of ours that this one stands on, or one from outside")
    if top.get("version"):
        if not top.get("release"):
            raise ConfigError(file, "release", "is missing: which version the others are beside")
        if not top.get("step"):
            raise ConfigError(file, "step", "is missing: the one whose packages other versions replace")
    return Table(
        name=folder.name,
        about=top.get("about", "").strip(),
        on=top["on"],
        official=top.get("official", ""),
        steps=tuple(reader.step(f"step[{number}]", each) for number, each in enumerate(top.get("step", ()))),
        config=reader.config(top.get("config", {})),
        release=top.get("release", ""),
        versions=tuple(
            reader.version(f"version[{number}]", each) for number, each in enumerate(top.get("version", ()))
        ),
    )


def script(step: Step) -> list[str]:
    """The shell commands of a step, in order, one after the other; a command may have several lines. For `set -eu`."""
    return list(_commands(step))


def _commands(step: Step) -> Iterator[str]:
    if step.suite:
        yield from _suite_added(step.suite)
    if step.packages:
        yield _wrapped("install-packages", step.packages)
    if step.suite:
        yield f"rm -rf {_suite_list(step.suite)} /var/lib/apt/lists/*{step.suite}*"
    if step.unpack:
        yield _wrapped("install-packages --unpack", step.unpack)
    if step.remove:
        yield f"rm -rf {' '.join(step.remove)}"
    for user in step.users:
        yield f"groupadd --system --gid {user.id} {user.name}"
        options = f"--home-dir {user.home} --no-create-home{f' --shell {user.shell}' if user.shell else ''}"
        yield f"useradd --system --uid {user.id} --gid {user.name} {options} {user.name}"
    for folder in step.folders:
        whose = "" if folder.owner == "root" else f" -o {folder.owner} -g {folder.owner}"
        mode = "" if folder.mode == Folder.mode else f" -m {folder.mode}"
        yield f"install -d{whose}{mode} {folder.path}"
    for link, target in step.links.items():
        yield f"ln -s {target} {link}"
    yield from _lines(step.run)
    if step.version:
        # By way of a variable: a program that fails ends the step, and its output ends with a newline or not.
        yield f'version="$({step.version})"'
        yield f'printf "%s\\n" "$version" > {VERSION_FILE}'


def _wrapped(command: str, words: tuple[str, ...]) -> str:
    """A command of many words as lines that fit a page."""
    return " \\\n        ".join(textwrap.wrap(f"{command} {' '.join(words)}", 100, break_on_hyphens=False))


def _suite_list(suite: str) -> str:
    return f"/etc/apt/sources.list.d/{suite}.list"


def _suite_added(suite: str) -> Iterator[str]:
    """A further suite, from the mirror that the image's packages come from anyway."""
    yield (
        "mirror=\"$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages'"
        f" | sed -n 's/^{SUITE} //p' | head -n 1)\""
    )
    yield (
        f'echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror {suite} main"'
        f" > {_suite_list(suite)}"
    )
    yield (
        f"apt-get -qq update -o Dir::Etc::sourcelist={_suite_list(suite)} -o Dir::Etc::sourceparts=-"
        " -o APT::Get::List-Cleanup=0"
    )


def _lines(commands: str) -> Iterator[str]:
    """One command for each line, those that end in a backslash together with the next."""
    begun: list[str] = []
    for line in commands.strip().splitlines():
        begun.append(line)
        if not line.endswith("\\"):
            yield "\n".join(begun)
            begun = []


class _Reader:
    """Takes the parts of one file apart; every error names the file and the key."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def part(self, where: str, value: Any, allowed: Mapping[str, str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigError(self._file, where, "must be a table")
        for key, each in value.items():
            dotted = f"{where}.{key}" if where else key
            if key not in allowed:
                raise ConfigError(self._file, dotted, f"unknown key (known: {', '.join(sorted(allowed))})")
            if not _fits(each, allowed[key]):
                raise ConfigError(self._file, dotted, f"must be {allowed[key]}")
        return value

    def step(self, where: str, value: Any) -> Step:
        kinds = dict.fromkeys(("note", "suite", "run", "version"), STRING)
        kinds |= dict.fromkeys(("settings", "packages", "unpack", "remove"), LIST)
        kinds |= {"files": MAPPING, "links": MAPPING, "users": TABLES, "folders": TABLES}
        found = self.part(where, value, kinds)
        for key in ("packages", "unpack"):
            for word in found.get(key, ()):
                if shlex.quote(word) != word or word.startswith("-"):
                    raise ConfigError(self._file, f"{where}.{key}", f"{word!r} is no package's name")
        return Step(
            note=found.get("note", "").strip(),
            files=found.get("files", {}),
            settings=tuple(found.get("settings", ())),
            suite=found.get("suite", ""),
            packages=tuple(found.get("packages", ())),
            unpack=tuple(found.get("unpack", ())),
            remove=tuple(found.get("remove", ())),
            users=tuple(self._user(f"{where}.users", each) for each in found.get("users", ())),
            folders=tuple(self._folder(f"{where}.folders", each) for each in found.get("folders", ())),
            links=found.get("links", {}),
            run=found.get("run", ""),
            version=found.get("version", ""),
        )

    def version(self, where: str, value: Any) -> Version:
        kinds = dict.fromkeys(("name", "about", "suite"), STRING) | {"packages": LIST}
        found = self.part(where, value, kinds)
        self._all_there(where, found, "name", "packages")
        if not VERSION.fullmatch(found["name"]):
            raise ConfigError(self._file, f"{where}.name", f"{found['name']!r} is no version: 3.4.23 is one")
        return Version(found["name"], found.get("about", "").strip(), found.get("suite", ""), tuple(found["packages"]))

    def _user(self, where: str, value: Any) -> User:
        found = self.part(where, value, {"name": STRING, "id": NUMBER, "home": STRING, "shell": STRING})
        self._all_there(where, found, "name", "id", "home")
        return User(**found)

    def _folder(self, where: str, value: Any) -> Folder:
        found = self.part(where, value, {"path": STRING, "owner": STRING, "mode": STRING})
        self._all_there(where, found, "path")
        return Folder(**found)

    def _all_there(self, where: str, found: Mapping[str, Any], *keys: str) -> None:
        for key in keys:
            if key not in found:
                raise ConfigError(self._file, f"{where}.{key}", "is missing")

    def config(self, value: Any) -> Config:
        kinds = dict.fromkeys(("workdir", "user", "stop_signal"), STRING)
        kinds |= dict.fromkeys(("volumes", "ports", "entrypoint", "command"), LIST) | {"env": MAPPING}
        found = self.part("config", value, kinds)
        words: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in found.items()}
        return Config(**words)


def _fits(value: Any, kind: str) -> bool:
    if kind == STRING:
        return isinstance(value, str)
    if kind == NUMBER:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == LIST:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if kind == TABLES:
        return isinstance(value, list) and all(isinstance(each, dict) for each in value)
    return isinstance(value, dict) and (kind == TABLE or all(isinstance(each, str) for each in value.values()))

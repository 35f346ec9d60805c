"""Writes the Dockerfile that a table says. It is kept beside the table, so that it serves without this project too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from harness.images.table import FILE, Config, Step, Table, script

_HEAD = "# Written from {file} by `fencepost images --dockerfile {name}`; change that file, not this one."


def dockerfile(table: Table, repository: str) -> str:
    """The whole text. An image of ours that it stands on is named `repository/<name>`."""
    lines = [_HEAD.format(file=FILE, name=table.name)]
    lines += _comment(table.about)
    if table.official:
        lines.append(f"# official: {table.official}")
    lines += [f"ARG BASE={f'{repository}/{table.below}' if table.below else table.on}", "FROM ${BASE}"]
    for step in table.steps:
        lines += _step(step)
    lines += _config(table.config)
    return "\n".join(lines) + "\n"


def _step(step: Step) -> Iterator[str]:
    yield from _comment(step.note)
    for name in step.settings:
        yield f"ARG {name}"
    for target, sources in _by_target(step.files).items():
        yield f"COPY {' '.join(sources)} {target}"
    commands = script(step)
    if len(commands) == 1:
        yield f"RUN {commands[0]}"
    elif commands:
        yield "RUN set -eu; \\\n    " + "; \\\n    ".join(commands)


def _by_target(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Files that go into one folder are one layer; a folder's content is one by itself."""
    found: dict[str, list[str]] = {}
    for source, target in files.items():
        found.setdefault(target, []).append(source)
    return found


def _config(config: Config) -> Iterator[str]:
    if config.env:
        yield "ENV " + " \\\n    ".join(f"{name}={_word(value)}" for name, value in config.env.items())
    if config.user:
        yield f"USER {config.user}"
    if config.workdir:
        yield f"WORKDIR {config.workdir}"
    if config.volumes:
        yield f"VOLUME {json.dumps(list(config.volumes))}"
    if config.stop_signal:
        yield f"STOPSIGNAL {config.stop_signal}"
    if config.ports:
        yield f"EXPOSE {' '.join(config.ports)}"
    if config.entrypoint:
        yield f"ENTRYPOINT {json.dumps(list(config.entrypoint))}"
    if config.command:
        yield f"CMD {json.dumps(list(config.command))}"


def _word(value: str) -> str:
    """A value of ENV, in which the builder would expand variables and split at spaces."""
    if all(sign.isalnum() or sign in "/:._-+,=@" for sign in value):
        return value
    return '"' + "".join(f"\\{sign}" if sign in '"\\$' else sign for sign in value) + '"'


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in text.splitlines()]

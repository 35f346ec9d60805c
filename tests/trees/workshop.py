"""Two images of a table's making, one on the other, in a cache of their own, on a root of a few programs."""

from __future__ import annotations

import secrets
from pathlib import Path

from harness import trees
from harness.trees.cache import Cache
from tests.trees.lowest import lowest


class Workshop:
    """A folder of tables with two images, one on the other, and a cache with what the lower one stands on."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, Cache(cache)
        self.lines: list[str] = []
        self.cache.prepare()
        lowest(self.cache)
        self.write(
            "low", "debian:x", "cat /etc/hostname 2>/dev/null || cat /etc/note > /etc/low", files={"note": "/etc/"}
        )
        self.write("high", "low", "cat /etc/low > /etc/high", version="cat /etc/note")
        (folder / "low" / "note").write_text("1.2\n")

    def write(self, name: str, on: str, run: str, version: str = "", files: dict[str, str] | None = None) -> None:
        copied = ", ".join(f'"{source}" = "{target}"' for source, target in (files or {}).items())
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "image.toml").write_text(
            f"on = '{on}'\n[[step]]\nrun = '''{run}'''\nversion = '{version}'\nfiles = {{ {copied} }}\n"
            f"[config]\nenv = {{ {name.upper()} = '{name}' }}\ncommand = ['{name}']\n"
        )
        below = f"fencepost/{on}" if ":" not in on else on
        (self.folder / name / "Dockerfile").write_text(f"ARG BASE={below}\nFROM ${{BASE}}\n# {secrets.token_hex(4)}\n")

    def ensure(self, *wanted: str) -> trees.Tree:
        self.lines.clear()
        return trees.ensure(wanted or ["high"], report=self.lines.append)[(wanted or ["high"])[0]]

    def drafts(self) -> list[Path]:
        return list((self.cache.folder / "drafts").iterdir())


def read(tree: trees.Tree, path: str) -> str:
    """A file as it is seen in a tree: in the topmost layer that has it."""
    return next(layer / path for layer in tree.layers if (layer / path).exists()).read_text()

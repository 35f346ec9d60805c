"""Help that can be read: a command's options under headings, in the order in which somebody asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

OTHERS = "More"
"""The heading of options that no other one names; `--help` alone should stand there."""


class GroupedCommand(click.Command):
    """A command whose `--help` lists its options under headings: heading -> the names of its options' parameters.

    A name that this command has no option for is passed over, so several commands can share one table.
    """

    def __init__(self, *args: Any, headings: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headings = headings

    def grouped(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Heading -> (option, help) of each option below it, as they are shown; headings without options left out."""
        records = {
            param.name: param.get_help_record(ctx) for param in self.get_params(ctx) if isinstance(param, click.Option)
        }
        found: dict[str, list[tuple[str, str]]] = {}
        for heading, names in self.headings.items():
            here = [record for record in (records.pop(name, None) for name in names) if record is not None]
            if here:
                found[heading] = here
        others = [record for record in records.values() if record is not None]
        if others:
            found[OTHERS] = others
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section for each heading, their columns in line with each other."""
        groups = self.grouped(ctx)
        width = max(len(option) for here in groups.values() for option, _ in here)
        for heading, here in groups.items():
            with formatter.section(heading):
                # Padded to one width, so that what is explained stands in one column all the way down.
                formatter.write_dl([(option.ljust(width), told) for option, told in here])

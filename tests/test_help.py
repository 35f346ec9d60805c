"""The help of every command: whole on eighty columns, and its options where somebody looks for them."""

from __future__ import annotations

import re

import click
import pytest

from harness.cli import COMMANDS, cli
from harness.commands.helping import OTHERS, GroupedCommand

COLUMNS = 80


def context(name: str) -> tuple[click.Command, click.Context]:
    """A command, and what its help is asked with on a terminal of eighty columns."""
    parent = click.Context(cli, info_name="fencepost", terminal_width=COLUMNS)
    command = cli.get_command(parent, name)
    assert command is not None
    return command, click.Context(command, parent=parent, info_name=name, terminal_width=COLUMNS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_whole_on_eighty_columns(name: str) -> None:
    """What click doesn't wrap (examples, exit codes) is short enough to begin with."""
    command, ctx = context(name)
    lines = command.get_help(ctx).splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert any(line.strip() == "Examples:" for line in lines)


@pytest.mark.parametrize("name", ["run", "matrix", "check"])
def test_every_option_stands_below_a_heading(name: str) -> None:
    """One that nobody put anywhere would be lost among "more" (there `--help` stands alone), and none stands twice."""
    command, ctx = context(name)
    assert isinstance(command, GroupedCommand)
    groups = command.grouped(ctx)
    (only, _), *others = groups.pop(OTHERS)
    assert (only in ("--help", "-h, --help"), others) == (True, [])  # click keeps what it was first asked under
    shown = [option for here in groups.values() for option, _ in here]
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert len(shown) == len(set(shown)) == len(options)
    assert max(len(here) for here in groups.values()) <= 10


def test_headings_follow_the_order_in_which_one_asks() -> None:
    """First what is run, last where it goes; and what is explained stands in one column all the way down."""
    command, ctx = context("run")
    told = command.get_help(ctx)
    headings = ["What to run:", "The cluster:", "The schedule:", "Judging:", "Several runs:", "Where:", "More:"]
    assert [line for line in told.splitlines() if line in headings] == headings
    lines = told[told.index(headings[0]) :].splitlines()
    begins = {found.end() for line in lines if (found := re.match(r"  -.*?\S  +", line)) is not None}
    assert len(begins) == 1

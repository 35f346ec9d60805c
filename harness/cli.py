"""The `fencepost` command. Each subcommand is one module in `harness/commands/`, imported only when it is called."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import traceback

import click

from harness import __version__, plain, redaction
from harness.commands.terminal import wrapped
from harness.errors import FencepostError

# One line of help each, so that `fencepost --help` imports none of them.
COMMANDS = {
    "demo": "The famous story in a minute: a paused lock holder wakes, and customers get two statements.",
    "run": "Run one trial: one system, one workload, one fault.",
    "matrix": "Run many trials from a TOML file and compare them.",
    "check": "Decide the verdicts of recorded histories.",
    "report": "Write the HTML report of a trial or a matrix again.",
    "adapter": "See whether the adapter of a lock of your own keeps the protocol.",
    "new": "Write a skeleton to begin with: a client of your own, with its test.",
    "images": "Get the images, and the file trees for machines without an engine, that trials need.",
    "clean": "Remove what earlier runs left behind, by labels alone.",
    "doctor": "Say what this machine can and can't do, and the remedy.",
    "export": "Write a history in the notation of Jepsen or Porcupine.",
    "list": "List systems, faults, workloads, clients and verdicts.",
}


class LazyGroup(click.Group):
    """A group whose commands live in `harness.commands.<name>`, as `<name>.command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"harness.commands.{cmd_name}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="fencepost")
def cli() -> None:
    """Fencepost breaks distributed locks on purpose, and says from the record whether two nodes were ever in charge.

    \b
    Examples:
      fencepost doctor
      fencepost images
      fencepost demo
      fencepost run etcd --fault freeze-holder
      fencepost matrix -j 4
      fencepost check results/*/history.jsonl
    """


def main() -> None:
    """Entry point: errors that a user can meet become one sentence and their exit code."""
    redaction.guard_terminal()
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(plain.block(shown.getvalue()), err=True, nl=False)
        sys.exit(error.exit_code)
    except FencepostError as error:
        click.echo(wrapped(f"fencepost: {plain.block(error, indent='  ')}", 2, sys.stderr), err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has left (`| head`): end as a program that SIGPIPE ends, without more words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:  # noqa: BLE001 - the last one who can turn it into a sentence and the right exit code
        click.echo(plain.block(traceback.format_exc()), err=True)
        said = plain.line(f"{type(error).__name__}: {error}")
        click.echo(f"fencepost: this is a bug of Fencepost, or a disk that is full: {said}", err=True)
        sys.exit(4)

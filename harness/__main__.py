"""The program `fencepost`, and `python -m harness`. Signals are heard before anything else is imported."""

from harness import signals

signals.listen()


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    code: object = 0
    try:
        from harness.cli import main as command_line

        command_line()
    except SystemExit as end:
        code = end.code
    signals.finish(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    main()

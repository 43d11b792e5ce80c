"""The command line: ``arenite`` and ``python -m arenite``.

Each verb is a row in ``VERBS``: its name, one line about it, a function that adds its
arguments, and a function that does it and gives the exit code. Failures that the package
knows of end in one line on standard error and exit code 1.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import arenite

from . import _inspect, _run, _spaces


class Verb(NamedTuple):
    """One command."""

    about: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


VERBS = {
    "inspect": Verb("says what is in a program and what it needs", _inspect.arguments, _inspect.run),
    "run": Verb("runs a method and prints its outputs", _run.arguments, _run.run),
    "spaces": Verb("says what memory this machine has", _spaces.arguments, _spaces.run),
}


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(prog="arenite", description="Runs ExecuTorch programs out of arenas.")
    top.add_argument("--version", action="version", version=f"arenite {arenite.__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        verb.arguments(verbs.add_parser(name, help=verb.about, description=f"{name}: {verb.about}."))
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    options = parser().parse_args(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a sign gets a question mark, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        return VERBS[options.verb].run(options)
    except BrokenPipeError:
        # The reader went away (`arenite inspect … | head`): that is not worth a word.
        sys.stderr.close()
        return 0
    except Exception as error:  # noqa: BLE001 - a file or argument can be wrong in any way; one line says how
        print(f"arenite: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

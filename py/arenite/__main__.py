"""The command line: ``arenite`` and ``python -m arenite``.

Each verb is a row in ``VERBS`` and a module ``_VERB`` with two functions: ``arguments``
adds its arguments to a parser, ``run`` does it and gives the exit code. Only the module of
the verb that was asked for is loaded. Failures that the package knows of end in one line on
standard error and exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence
from types import ModuleType

import arenite

VERBS = {
    "inspect": "says what is in a program and what it needs",
    "run": "runs a method and prints a line per output",
    "plan": "draws the memory plan of a method",
    "bench": "times the loading and the runs of a method",
    "spaces": "says what memory this machine has",
}


def module(verb: str) -> ModuleType:
    """The module of a verb."""
    return importlib.import_module(f"arenite._{verb}")


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command line; of the verbs, only the one in `words` has its arguments."""
    top = argparse.ArgumentParser(prog="arenite", description="Runs ExecuTorch programs out of arenas.")
    top.add_argument("--version", action="version", version=f"arenite {arenite.__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, about in VERBS.items():
        verb = verbs.add_parser(name, help=about, description=f"{name}: {about}.")
        if name in words:
            module(name).arguments(verb)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    words = sys.argv[1:] if words is None else words
    options = parser(words).parse_args(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a sign gets a question mark, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        return int(module(options.verb).run(options))
    except BrokenPipeError:
        # The reader went away (`arenite inspect … | head`): that is not worth a word.
        sys.stderr.close()
        return 0
    except Exception as error:  # noqa: BLE001 - a file or argument can be wrong in any way; one line says how
        print(f"arenite: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

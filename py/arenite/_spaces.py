"""``arenite spaces``: what memory this machine has, and why a space is absent."""

from __future__ import annotations

import argparse
import json

import arenite


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this verb."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Prints one line a space."""
    spaces = arenite.Runtime.get().spaces
    if options.json:
        print(json.dumps({name: space.to_dict() for name, space in spaces.items()}, indent=1))
        return 0
    for name, space in spaces.items():
        print(f"{name:8}  {describe(space)}")
    return 0


def describe(space: arenite.Space) -> str:
    """One line about a space."""
    if not space.available:
        return f"absent: {space.reason}"
    parts = [f"{size(value)} {word}" for value, word in ((space.total, "total"), (space.free, "free")) if value]
    return ", ".join(parts) or "available"


def size(count: int) -> str:
    """A number of bytes, as a person says it."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"

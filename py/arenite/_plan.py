"""``arenite plan``: a method's memory plan as a picture, and in numbers."""

from __future__ import annotations

import argparse
import pathlib
import shutil

import arenite

from ._run import default_method

ROWS = 16


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this verb."""
    parser.add_argument("file", metavar="FILE", help="a program (.pte)")
    parser.add_argument("--method", metavar="M", help="the method; the only one or 'forward' unless given")
    parser.add_argument("--data", metavar="FILE", nargs="+", action="extend", default=[], help="data files (.ptd)")
    parser.add_argument("--replan", choices=["best", "greedy"], help="a new plan in the place of the file's")
    parser.add_argument("-o", "--out", metavar="SVG", help="write the picture here")
    parser.add_argument("--text", action="store_true", help="print the picture in letters")


def run(options: argparse.Namespace) -> int:
    """Draws and prints."""
    program = arenite.Runtime.get().load_program(options.file, data_path=options.data or None)
    name = options.method or default_method(program)
    drawing = program.draw_plan(name, replan=options.replan)
    if options.out:
        pathlib.Path(options.out).write_text(drawing.to_svg(), encoding="utf-8")
        print(f"wrote {options.out} (SVG)")
    if options.text or not options.out:
        print(drawing.to_text(min(shutil.get_terminal_size((80, 24)).columns, 200) - 2, ROWS))
    for arena, size, most in drawing.arenas:
        used = f", {100 * most / size:.0f} % of it" if size else ""
        print(f"{arena}; at most {most} alive at once{used}")
    return 0

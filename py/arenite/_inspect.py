"""``arenite inspect``: what a program holds, needs, and lacks here.

No code of the program runs; neither a GPU nor torch nor the data files are needed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

import arenite

from ._spaces import size

NOT_RUNNABLE = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this verb."""
    parser.add_argument("file", metavar="FILE", help="a program (.pte)")
    parser.add_argument("--method", metavar="M", help="only this method")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    parser.add_argument("--data", metavar="FILE", nargs="+", action="extend", default=[], help="data files (.ptd)")


def run(options: argparse.Namespace) -> int:
    """Prints the facts; gives 0 where the program can run here, else 3."""
    program = arenite.Runtime.get().load_program(options.file, data_path=options.data or None)
    facts = program.inspect(options.method, tensors=options.tensors)
    for name, method in facts["methods"].items():
        # Without its data files a method cannot be measured whole.
        method["needs"] = {} if method["missing_data"] else program.memory_report(name).to_dict()["needs"]
    if options.json:
        print(json.dumps(facts, indent=1))
    else:
        print("\n".join(lines(facts)))
    return NOT_RUNNABLE if program.missing(options.method) else 0


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts as text."""
    lacks = set(facts["missing"]["operators"]) | set(facts["missing"]["delegates"])
    yield f"{facts['file']}   schema {facts['schema_version']}, {size(facts['constants']['bytes'])} of constants"
    for name, method in facts["methods"].items():
        yield ""
        yield f"{name}   {method['instructions']} instructions"
        for role in ("inputs", "outputs"):
            for index, value in enumerate(method[role]):
                yield f"  {role[:-1]:6} {index}  {describe(value)}"
        for arena in method["arenas"]:
            yield f"  arena {arena['index']}   {arena['bytes']} bytes in {arena['space']}"
        for space, stages in method["needs"].items():
            parts = ", ".join(f"{stage} {size}" for stage, size in stages.items())
            yield f"  needs    {sum(stages.values())} bytes in {space}: {parts}"
        for state in method["state"]:
            start = "initial values in the file" if state["initial"] else "starts as zeros"
            shared = f", shared with {', '.join(state['shared_with'])}" if state["shared_with"] else ""
            yield f"  state    {state['name']}  {state['dtype']} {shape(state['sizes'])}, {start}{shared}"
        for word in ("operators", "delegates"):
            if method[word]:
                yield f"  {word}"
                for item in (name.removesuffix(".") for name in method[word]):
                    yield f"    {'✗' if item in lacks else '✓'} {item}"
        for index, tensor in enumerate(method.get("tensors", ())):
            yield f"  tensor {index}  {describe(tensor)}"
    if facts["named_data"]:
        yield ""
        for blob in facts["named_data"]:
            yield f"data  {blob['key']}  {size(blob['bytes'])} in {blob['source']}"
    missing = [f"{kind}: {', '.join(names)}" for kind, names in facts["missing"].items() if names]
    if missing:
        yield ""
        yield "missing here"
        yield from (f"  {line}" for line in missing)


def shape(sizes: list[int]) -> str:
    """Sizes, as Python prints a tuple."""
    return str(tuple(sizes))


def describe(value: Mapping[str, Any]) -> str:
    """One value: a tensor with its bounds, layout and place, or a constant."""
    if value["kind"] != "tensor":
        return f"{value['kind']} {value.get(value['kind'] + '_val', '')}".rstrip()
    text = f"{value['dtype']} {shape(value['sizes'])}"
    if value["dynamic"] != "static":
        text += " at most"
    if value["dim_order"] != sorted(value["dim_order"]):
        text += f", dim order {shape(value['dim_order'])}"
    planned = value["planned"]
    if planned:
        text += f", arena {planned['arena']} offset {planned['offset']}"
    elif value.get("constant"):
        text += ", constant"
    else:
        text += ", not planned"
    name = value.get("name")
    return f"{text}  ({name})" if name else text

"""``arenite bench``: how long a method takes to load and to run.

What is measured: ``execute`` from Python, arrays in and arrays out, in one thread. Times are of the wall clock, so
that a device's work counts; give the median and the spread, never a single run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import numpy as np

import arenite
from arenite._run import arena_set, default_method, dims, program_arguments, read, zeros

LEAST_RUNS = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this verb."""
    program_arguments(parser)
    parser.add_argument(
        "--shape",
        metavar="N=AxB",
        action="append",
        default=[],
        help="random elements of this shape for input N; inputs not named are as declared",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--repeat", type=count_of_runs, metavar="N", help="so many timed runs (100)")
    length.add_argument("--seconds", type=seconds, metavar="S", help="timed runs for so long")
    parser.add_argument("--warmup", type=count_of_runs, default=5, metavar="N", help="runs before timing, after the first (5)")
    parser.add_argument("--capture", action="store_true", help="launch device work as a recorded graph")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def count_of_runs(text: str) -> int:
    """A whole number from 1 up."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def seconds(text: str) -> float:
    """A time above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def run(options: argparse.Namespace) -> int:
    """Loads, runs, prints."""
    begun = time.perf_counter_ns()
    program = arenite.Runtime.get().load_program(options.file, data_path=options.data or None)
    opened = time.perf_counter_ns()
    name = options.method or default_method(program)
    method = program.load_method(name, arenas=arena_set(options))
    loaded = time.perf_counter_ns()
    inputs = values(options, program.metadata(name))
    if options.capture:
        method.capture()
    first = timed(method, inputs)
    for _ in range(options.warmup):
        method.execute(inputs)
    runs = measure(method, inputs, options)
    facts = {
        "method": name,
        "load_program_us": (opened - begun) / 1e3,
        "load_method_us": (loaded - opened) / 1e3,
        "first_run_us": first / 1e3,
        "runs": len(runs),
        **spread(runs),
        "copied_bytes": copied_bytes(method, inputs),
        "planned_bytes": {space: row["planned_bytes"] for space, row in method.memory_report().to_dict()["spaces"].items()},
    }
    print(json.dumps(facts) if options.json else text(facts))
    return 0


def values(options: argparse.Namespace, meta: arenite.MethodMeta) -> list[Any]:
    """The inputs that were given, in the shapes that were given."""
    given = [read(word) for word in options.input] or zeros(meta)
    for word in options.shape:
        index, equals, sizes = word.partition("=")
        if not equals or not index.isdigit() or int(index) >= len(given):
            raise SystemExit(f"arenite: --shape {word!r} is not of the form N=AxB with N below {len(given)}")
        if not isinstance(given[int(index)], np.ndarray):
            raise SystemExit(f"arenite: --shape {word!r}: input {index} is no tensor")
        elements = np.random.default_rng(0).standard_normal(dims(sizes))
        given[int(index)] = np.asarray(elements).astype(given[int(index)].dtype)
    return given


def measure(method: arenite.Method, inputs: list[Any], options: argparse.Namespace) -> list[int]:
    """The nanoseconds of every timed run."""
    if options.seconds is None:
        return [timed(method, inputs) for _ in range(options.repeat or 100)]
    runs: list[int] = []
    end = time.perf_counter() + options.seconds
    shows = sys.stderr.isatty()
    while time.perf_counter() < end or len(runs) < LEAST_RUNS:
        runs.append(timed(method, inputs))
        if shows and len(runs) % 1000 == 0:
            print(f"\r{len(runs)} runs", end="", file=sys.stderr)
    if shows:
        print("\r", end="", file=sys.stderr)
    return runs


def timed(method: arenite.Method, inputs: list[Any]) -> int:
    """The nanoseconds of one run."""
    begun = time.perf_counter_ns()
    method.execute(inputs)
    return time.perf_counter_ns() - begun


def spread(runs: list[int]) -> dict[str, float]:
    """The median, and what a tenth of the runs are below and above, in microseconds."""
    tenths = statistics.quantiles(runs, n=10, method="inclusive") if len(runs) > 1 else runs * 9
    return {"median_us": statistics.median(runs) / 1e3, "p10_us": tenths[0] / 1e3, "p90_us": tenths[-1] / 1e3}


def copied_bytes(method: arenite.Method, inputs: list[Any]) -> dict[str, int]:
    """The bytes that one run copies between the caller and the method's memory."""
    meta = method.metadata
    planned = 0
    for index, value in enumerate(inputs):
        if isinstance(value, np.ndarray) and meta.input_tensor_meta(index).is_memory_planned():
            planned += value.nbytes
    outputs = method.execute(inputs)
    return {"in": planned, "out": sum(value.nbytes for value in outputs if isinstance(value, np.ndarray))}


def text(facts: dict[str, Any]) -> str:
    """The figures for people."""
    copied, planned = facts["copied_bytes"], facts["planned_bytes"]
    return "\n".join(
        [
            f"{facts['method']}  median {facts['median_us']:.2f} us  (p10 {facts['p10_us']:.2f}, "
            f"p90 {facts['p90_us']:.2f}; {facts['runs']} runs)",
            f"first run {facts['first_run_us']:.1f} us  load_program {facts['load_program_us']:.1f} us  "
            f"load_method {facts['load_method_us']:.1f} us",
            f"copied a run: {copied['in']} bytes in, {copied['out']} out  planned: "
            + ", ".join(f"{space} {size} bytes" for space, size in planned.items()),
        ]
    )

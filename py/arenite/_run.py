"""``arenite run``: runs a method once and says what came out."""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import arenite

DIFFERS = 4
FILLS: Mapping[str, Callable[..., Any]] = {
    "ones": np.ones,
    "zeros": np.zeros,
    "arange": lambda sizes, dtype: np.arange(int(np.prod(sizes))).reshape(sizes).astype(dtype),
    "random": lambda sizes, dtype: np.asarray(np.random.default_rng(0).standard_normal(sizes)).astype(dtype),
}
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def program_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say what to run, on what, out of which memory."""
    parser.add_argument("file", metavar="FILE", help="a program (.pte)")
    parser.add_argument("--method", metavar="M", help="the method; the only one or 'forward' unless given")
    parser.add_argument(
        "--input",
        metavar="X",
        action="append",
        default=[],
        help="a .npy file, FILE.npz:NAME, ones:4x16:float32 (or zeros, arange, random), int:3, float:0.5, bool:true, "
        "str:text or none; once per input, in order; zeros for all where none is given",
    )
    parser.add_argument("--data", metavar="FILE", nargs="+", action="extend", default=[], help="data files (.ptd)")
    parser.add_argument("--arena", metavar="A=B", action="append", default=[], help="remap a space: cuda:0=host")
    parser.add_argument("--limit", metavar="A=N", action="append", default=[], help="limit a space: host=1GiB")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this verb."""
    program_arguments(parser)
    parser.add_argument("--out", metavar="DIR", help="write each output as DIR/outN.npy")
    parser.add_argument("--compare", metavar="WANT", help="compare with out0, out1, … of this .npz")
    parser.add_argument("--tol", type=float, default=1e-5, help="the largest difference allowed (1e-5)")


def run(options: argparse.Namespace) -> int:
    """Runs and prints; gives 0, or 4 where outputs differ from those wanted."""
    program = arenite.Runtime.get().load_program(options.file, data_path=options.data or None)
    name = options.method or default_method(program)
    method = program.load_method(name, arenas=arena_set(options))
    given = [read(text) for text in options.input] or zeros(program.metadata(name))
    outputs = method.execute(given)
    for index, output in enumerate(outputs):
        print(f"out{index}  {describe(output)}")
    if options.out:
        write(pathlib.Path(options.out), outputs)
    return compare(options, name, outputs) if options.compare else 0


def default_method(program: arenite.Program) -> str:
    """The only method, or the one named forward."""
    names = program.method_names
    if len(names) == 1:
        return next(iter(names))
    if "forward" in names:
        return "forward"
    raise SystemExit(f"arenite: --method is one of {', '.join(sorted(names))}")


def arena_set(options: argparse.Namespace) -> arenite.ArenaSet | None:
    """The arenas that ``--arena`` and ``--limit`` ask for."""
    if not options.arena and not options.limit:
        return None
    remap = dict(pair(text) for text in options.arena)
    host: arenite.Host | None = None
    devices: list[arenite.Cuda] = []
    for space, number in map(pair, options.limit):
        name, _, index = space.partition(":")
        if name == "host":
            host = arenite.Host(limit=count(number))
        elif name == "cuda":
            devices.append(arenite.Cuda(int(index or 0), limit=count(number)))
        else:
            raise SystemExit(f"arenite: --limit {space}: host and cuda:N can be limited")
    return arenite.ArenaSet(host=host, cuda=devices or None, remap=remap)


def pair(text: str) -> tuple[str, str]:
    """``a=b`` as two."""
    left, equals, right = text.partition("=")
    if not equals or not left or not right:
        raise SystemExit(f"arenite: {text!r} is not of the form SPACE=VALUE")
    return left, right


def count(text: str) -> int:
    """A number of bytes: ``65536`` or ``1GiB``."""
    match = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB|TiB|)", text)
    if not match:
        raise SystemExit(f"arenite: {text!r} is no size; write 65536, 64KiB, 1GiB")
    return int(match[1]) * UNITS[match[2]]


def read(text: str) -> Any:
    """One input from the command line."""
    word, _, rest = text.partition(":")
    scalars: Mapping[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "str": str,
        "bool": lambda word: {"true": True, "false": False}[word.lower()],
    }
    try:
        if text == "none":
            return None
        if word in scalars and rest:
            return scalars[word](rest)
        if word in FILLS and rest:
            sizes, _, dtype = rest.partition(":")
            return FILLS[word](dims(sizes), dtype=numpy_dtype(dtype or "float32"))
        path, separator, member = text.rpartition(":")
        if separator and path.endswith(".npz"):
            with np.load(path) as archive:
                return archive[member]
        return np.load(text)
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"arenite: --input {text}: {error}") from error


def dims(text: str) -> tuple[int, ...]:
    """``4x16`` as (4, 16); nothing or ``scalar`` as ()."""
    return () if text in ("", "scalar") else tuple(int(size) for size in text.split("x"))


def numpy_dtype(name: str) -> Any:
    """A dtype of NumPy, or of ml_dtypes where NumPy has none."""
    try:
        return np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, name))
        except (ImportError, AttributeError):
            raise ValueError(f"{name!r} is no dtype") from None


def zeros(meta: arenite.MethodMeta) -> list[Any]:
    """Inputs for a method that none were given for: zeros, and the scalars frozen at export."""
    return [meta.example_input(index) for index in range(meta.num_inputs())]


def describe(output: Any) -> str:
    """Dtype, shape, and a digest of the bytes; scalars as they are."""
    if output is None or isinstance(output, (bool, int, float, str)):
        return f"{type(output).__name__} {output!r}"
    array = np.ascontiguousarray(output.numpy() if isinstance(output, arenite.Tensor) else output)
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
    return f"{output.dtype} {tuple(output.shape)}  sha256:{digest}"


def write(folder: pathlib.Path, outputs: list[Any]) -> None:
    """Writes each output as a .npy file; kinds that such files have no name for (bfloat16) as float32, exactly."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, output in enumerate(outputs):
        array = np.asarray(output)
        np.save(folder / f"out{index}.npy", array.astype(np.float32) if array.dtype.kind == "V" else array)


def compare(options: argparse.Namespace, name: str, outputs: list[Any]) -> int:
    """Prints the largest difference of each output; gives 4 where one is over the tolerance."""
    differs = False
    with np.load(options.compare) as wanted:
        for index, output in enumerate(outputs):
            key = next((key for key in (f"{name}.out{index}", f"out{index}") if key in wanted), None)
            if key is None:
                print(f"out{index}  not in {options.compare}")
                differs = True
                continue
            got, want = np.asarray(output), wanted[key]
            if got.shape != want.shape:
                print(f"out{index}  shape {got.shape}, wanted {want.shape}")
                differs = True
                continue
            error = difference(got, want)
            differs |= not error <= options.tol
            print(f"out{index}  largest difference {error:.3g} ({'ok' if error <= options.tol else 'over'} {options.tol:g})")
    return DIFFERS if differs else 0


def difference(got: Any, want: Any) -> float:
    """The largest absolute difference; equal NaNs and infinities count as 0. Integers are compared as such."""
    if got.dtype.kind in "biu" and want.dtype.kind in "biu":
        differ = got != want
        pairs = zip(got[differ].tolist(), want[differ].tolist(), strict=True)
        return float(max((abs(int(a) - int(b)) for a, b in pairs), default=0))
    kind = np.complex128 if "c" in (got.dtype.kind, want.dtype.kind) else np.float64
    got, want = got.astype(kind), want.astype(kind)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(got - want))
    return float(np.max(gap, initial=0.0))

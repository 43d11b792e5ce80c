"""Arenite beside ExecuTorch's own wheel, in one process and in turn: one ratio a line.

    cargo xtask peers python                 the programs in tests/data
    cargo xtask peers python DIR…            and those in other folders (NAME.pte with NAME.npz)

Both runtimes get the same values, NumPy arrays for Arenite and torch tensors for ExecuTorch. Answers are
checked against the stored ones of eager PyTorch before anything is timed. Each figure is the least of many
short rounds, taken in turn, so that noise of the machine falls on both. Import time and resident memory are
taken in processes of their own.
"""

from __future__ import annotations

import logging
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
EXECUTED = ("seed_net", "chain100", "mlp", "lm")
ROUND_SECONDS = 0.02
ROUNDS = 40


def least(run: Callable[[], Any], rounds: int, seconds: float) -> Callable[[], float]:
    """A function that times one round of `run` and gives seconds per call."""
    start = time.perf_counter()
    run()
    once = max(time.perf_counter() - start, 1e-7)
    calls = max(1, int(seconds / once))

    def one_round() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls

    return one_round


def in_turn(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """The least time of each, rounds in turn."""
    rounds = [least(run, ROUNDS, ROUND_SECONDS) for run in (ours, theirs)]
    best = [float("inf"), float("inf")]
    deadline = time.perf_counter() + 20
    for _ in range(ROUNDS):
        for index, one in enumerate(rounds):
            best[index] = min(best[index], one())
        if time.perf_counter() > deadline:
            break
    return best[0], best[1]


def line(what: str, ours: float, theirs: float, unit: str = "us", scale: float = 1e6) -> None:
    """One ratio, with both figures."""
    print(f"{ours / theirs:6.3f}  {what:28} {ours * scale:10.2f} {unit}  {theirs * scale:10.2f} {unit}", flush=True)


def programs(folders: list[pathlib.Path]) -> dict[str, pathlib.Path]:
    """Programs with stored values, by name; the first folder that has one counts."""
    found: dict[str, pathlib.Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.pte")):
            if path.with_suffix(".npz").exists():
                found.setdefault(path.stem, path)
    return found


def values(path: pathlib.Path, role: str) -> list[Any]:
    """The stored inputs or outputs of ``forward``."""
    with np.load(path.with_suffix(".npz")) as arrays:
        count = sum(key.startswith(f"forward.{role}") for key in arrays)
        return [arrays[f"forward.{role}{index}"] for index in range(count)]


def check(name: str, who: str, got: list[Any], want: list[Any]) -> None:
    """Stops where an answer is not that of eager PyTorch."""
    for index, (one, other) in enumerate(zip(got, want, strict=True)):
        if not np.allclose(np.asarray(one), other, rtol=1e-4, atol=1e-5):
            raise SystemExit(f"{name}: output {index} of {who} is not that of eager PyTorch")


def cost_of_import(module: str) -> tuple[float, float]:
    """Seconds and bytes resident of a process that only imports `module`, least of several."""
    code = (
        "import time; start = time.perf_counter()\n"
        f"import {module}, numpy\n"
        "print(time.perf_counter() - start, open('/proc/self/statm').read().split()[1])"
    )
    rows = []
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds, pages = run.stdout.split()[-2:]
        rows.append((float(seconds), int(pages) * 4096))
    return min(row[0] for row in rows), float(min(row[1] for row in rows))


def main() -> None:
    """Prints every ratio."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    found = programs([DATA, *map(pathlib.Path, sys.argv[1:])])
    ours_import, theirs_import = cost_of_import("arenite"), cost_of_import("executorch.runtime")

    import torch
    from executorch.runtime import Runtime

    import arenite

    torch.set_num_threads(1)
    print("ratio   what                            arenite     executorch")
    line("import", ours_import[0], theirs_import[0], "ms", 1e3)
    line("resident after import", ours_import[1], theirs_import[1], "MB", 1e-6)

    ours, theirs = arenite.Runtime.get(), Runtime.get()
    for name, path in found.items():
        text = str(path)
        try:
            theirs.load_program(text).load_method("forward")
        except Exception as reason:
            print(f"   -    load {name}: ExecuTorch refuses it ({reason})")
            continue
        line(
            f"load {name}",
            *in_turn(
                lambda text=text: ours.load_program(text).load_method("forward"),  # type: ignore[misc]
                lambda text=text: theirs.load_program(text).load_method("forward"),  # type: ignore[misc]
            ),
        )

    for name in EXECUTED:
        if name not in found:
            print(f"   -    execute {name}: no such program; name its folder")
            continue
        path = found[name]
        arrays, want = values(path, "in"), values(path, "out")
        tensors = [torch.from_numpy(array.copy()) for array in arrays]
        own = ours.load_program(str(path)).load_method("forward")
        other = theirs.load_program(str(path)).load_method("forward")
        check(name, "arenite", own.execute(arrays), want)
        check(name, "executorch", [output.detach().numpy() for output in other.execute(tensors)], want)
        line(f"execute {name}", *in_turn(lambda: own.execute(arrays), lambda: other.execute(tensors)))


if __name__ == "__main__":
    main()

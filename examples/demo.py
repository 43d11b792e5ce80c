"""What Arenite does, in one run: a host program, its memory, and a program for a GPU.

`cargo xtask demo` builds the wheel and runs this. Values are compared with those of eager PyTorch, which were
stored when the programs were exported.
"""

from __future__ import annotations

import zlib
import pathlib
import sys

import numpy as np

import arenite

DATA = pathlib.Path(__file__).resolve().parents[1] / "tests" / "data"


def values(archive: pathlib.Path, prefix: str) -> list[np.ndarray]:
    """The stored arrays whose names start with `prefix`, in order."""
    with np.load(archive) as arrays:
        return [arrays[f"{prefix}{index}"] for index in range(sum(key.startswith(prefix) for key in arrays))]


def compare(outputs: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """Prints the largest difference; stops where it is over 1e-5."""
    worst = max(float(np.max(np.abs(one - other))) for one, other in zip(outputs, wanted, strict=True))
    print(f"largest difference from eager PyTorch: {worst:.3g}")
    if not worst <= 1e-5:
        sys.exit("that is more than 1e-5")


def host() -> None:
    """A host program, run twice from one arena."""
    print("== seed_net, exported for the host ==")
    program = arenite.Runtime.get().load_program(DATA / "seed_net.pte")
    method = program.load_method("forward")
    inputs, wanted = values(DATA / "seed_net.npz", "forward.in"), values(DATA / "seed_net.npz", "forward.out")
    for _ in range(2):
        compare(method.execute(inputs), wanted)
    print()
    print(method.memory_report())


def device() -> None:
    """The same network, exported for CUDA: run where there is a GPU, else refused by name."""
    print("\n== seed_net, exported for CUDA ==")
    program = arenite.Runtime.get().load_program(
        zlib.decompress((DATA / "cuda" / "seed_net.pte.z").read_bytes()),
        data_path=DATA / "cuda" / "seed_net.ptd",
    )
    for arena in program.inspect("forward")["methods"]["forward"]["arenas"]:
        print(f"its plan: arena {arena['index']}, {arena['bytes']} bytes in {arena['space']}")
    try:
        method = program.load_method("forward")
    except arenite.Error as refusal:
        if arenite.Runtime.get().spaces["cuda:0"].available:
            raise
        print(f"refused: {type(refusal).__name__}: {refusal}")
        if not isinstance(refusal, arenite.MemorySpaceError) or "cuda:0" not in str(refusal):
            sys.exit("the refusal should be a MemorySpaceError that names cuda:0")
        return
    archive = DATA / "cuda" / "seed_net.npz"
    compare(method.execute(values(archive, "forward.in")), values(archive, "forward.out"))
    print(method.memory_report())


if __name__ == "__main__":
    host()
    device()

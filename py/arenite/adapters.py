"""Memory of Arenite's pools for other libraries: NumPy, CuPy, PyTorch.

    with arenite.adapters.numpy(arenite.Pool()):            # new arrays lie in the pool
        ...
    cupy.cuda.set_allocator(arenite.adapters.cupy(arenite.Pool("cuda:0")))
    torch.cuda.memory.change_current_allocator(arenite.adapters.torch())

Importing this module imports none of them.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from . import _arenite
from ._arenite import Pool

__all__ = ["cupy", "numpy", "torch"]


@contextlib.contextmanager
def numpy(pool: Pool) -> Iterator[Pool]:
    """New arrays of this thread or task lie in ``pool`` while the block runs; they may outlive it."""
    before = _arenite._set_numpy_memory(pool)
    try:
        yield pool
    finally:
        _arenite._set_numpy_memory(before)


def cupy(pool: Pool) -> Any:
    """What ``cupy.cuda.set_allocator`` takes: blocks of ``pool``, used again in the order of CuPy's current stream."""
    cuda = importlib.import_module("cupy").cuda

    def take(size: int, _device: int) -> int:
        return pool.alloc(size, 512, cuda.get_current_stream().ptr)

    def give_back(address: int, _device: int) -> None:
        pool.free(address)

    return cuda.PythonFunctionAllocator(take, give_back).malloc


def torch() -> Any:
    """What ``torch.cuda.memory.change_current_allocator`` takes; to be set before PyTorch's first use of a device."""
    memory = importlib.import_module("torch").cuda.memory
    return memory.CUDAPluggableAllocator(_arenite.__file__, "arenite_torch_alloc", "arenite_torch_free")

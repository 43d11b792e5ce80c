"""Memory that a Python object hands out."""

from __future__ import annotations

import gc
import mmap
from typing import Any

import numpy as np
import pytest

import arenite


class Mapped:
    """Anonymous pages, handed out from the front; blocks are counted back in."""

    def __init__(self, size: int = 1 << 20) -> None:
        self.pages = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        self.used = 0
        self.live: dict[int, int] = {}

    def alloc(self, size: int, align: int) -> int:
        start = -(-self.used // align) * align
        if start + size > self.pages.size:
            raise MemoryError(f"{size} bytes asked, {self.pages.size - start} left")
        self.used = start + size
        address = self.pages.ctypes.data + start
        self.live[address] = size
        return address

    def free(self, address: int, size: int) -> None:
        assert self.live.pop(address) == size


def test_methods_run_in_memory_of_ones_own(seed_net: Any) -> None:
    pages = Mapped()
    arenas = arenite.ArenaSet(host=pages)
    method = arenite.Runtime.get().load_program(seed_net.path).load_method("forward", arenas=arenas)
    assert sum(pages.live.values()) >= 768
    np.testing.assert_array_equal(method.execute(seed_net.inputs())[0], seed_net.outputs()[0])
    held = pages.pages[: pages.used]
    assert held.tobytes().find(seed_net.inputs()[0].tobytes()) >= 0, "the input lies in these pages"
    assert arenas.report().to_dict()["host"]["current_bytes"] >= 768
    del method
    gc.collect()
    assert not pages.live


def test_memory_that_is_refused_ends_the_load_and_says_whose(seed_net: Any) -> None:
    pages = Mapped(size=512)
    with pytest.raises(arenite.ArenaMemoryError, match=r"its alloc\(bytes, align\) raised") as caught:
        arenite.load(seed_net.path, arenas=arenite.ArenaSet(host=pages))
    assert isinstance(caught.value.__cause__, MemoryError) and "bytes asked" in str(caught.value.__cause__)
    with pytest.raises(arenite.ArenaMemoryError) as other:
        arenite.load(seed_net.path, arenas=arenite.ArenaSet(host=arenite.Host(limit=1)))
    assert other.value.__cause__ is None
    assert not pages.live


@pytest.mark.parametrize("address", [0, 3, -1, 1 << 70, None, "x"])
def test_addresses_that_cannot_be_are_refused(seed_net: Any, address: Any) -> None:
    freed: list[int] = []

    class Odd:
        def alloc(self, size: int, align: int) -> Any:
            return address

        def free(self, given: int, size: int) -> None:
            freed.append(given)

    with pytest.raises(arenite.ArenaMemoryError, match="alloc"):
        arenite.load(seed_net.path, arenas=arenite.ArenaSet(host=Odd()))
    assert freed == ([3] * len(freed) if address == 3 else [])


def test_a_pool_of_a_device_needs_the_device(seed_net: Any) -> None:
    if arenite.Runtime.get().spaces["cuda:0"].available:
        pytest.skip("a device is there")
    pages = Mapped()
    cuda = arenite.Cuda(0, pool=pages)
    assert cuda.pool is pages
    with pytest.raises(arenite.MemorySpaceError, match="cuda:0 is not there"):
        arenite.ArenaSet(cuda=cuda)


def test_what_hands_out_no_memory_is_refused() -> None:
    with pytest.raises(TypeError, match="expected Host"):
        arenite.ArenaSet(host=object())  # type: ignore[arg-type]

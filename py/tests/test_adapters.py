"""Memory of pools for other libraries."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import arenite
import arenite.adapters


def test_a_pool_gives_blocks_and_takes_each_back_once() -> None:
    pool = arenite.Pool(limit=1 << 20)
    first, second = pool.alloc(1000, 64), pool.alloc(1000, 4096)
    assert first % 64 == 0 and second % 4096 == 0 and pool.stats()["blocks"] == 2
    pool.free(first, 1000)
    with pytest.raises(ValueError, match="given back once"):
        pool.free(first)
    pool.free(second)
    assert pool.stats()["live_bytes"] == 0
    assert pool.trim() > 0 and pool.stats()["capacity_bytes"] == 0
    with pytest.raises(arenite.ArenaMemoryError) as caught:
        pool.alloc(2 << 20)
    assert caught.value.details["needed_bytes"] == str(2 << 20)
    with pytest.raises(ValueError, match="align"):
        pool.alloc(8, 3)
    assert pool.alloc(0) != pool.alloc(0), "each block has an address of its own"
    assert repr(pool) == "Pool(host)"


def test_methods_take_memory_from_a_pool(seed_net: Any) -> None:
    pool = arenite.Pool()
    method = arenite.load(seed_net.path, arenas=arenite.ArenaSet(host=pool))
    assert pool.stats()["live_bytes"] >= 768
    np.testing.assert_array_equal(method(*seed_net.inputs()), seed_net.outputs()[0])
    del method
    gc.collect()
    assert pool.stats()["blocks"] == 0


def test_arrays_of_numpy_lie_in_a_pool_and_may_outlive_it() -> None:
    pool = arenite.Pool()
    with arenite.adapters.numpy(pool) as same:
        assert same is pool
        array = np.arange(1000, dtype=np.float64)
        zeros = np.zeros((100, 100))
        assert pool.stats()["live_bytes"] >= array.nbytes + zeros.nbytes
        assert array.ctypes.data % 64 == 0 and not zeros.any()
        array.resize(5000, refcheck=False)
        assert array[:1000].sum() == 999 * 500 and not array[1000:].any()
        out = (array * 2 + 1).astype(np.float32)
        assert np.linalg.norm(out) > 0
    after = np.ones(1 << 20)
    assert pool.stats()["live_bytes"] < after.nbytes
    kept = array[:1000].copy()
    del zeros, out
    np.testing.assert_array_equal(array[:1000], kept)
    stats = pool.stats()
    assert stats["blocks"] == 1
    del array
    assert pool.stats()["blocks"] == 0
    with arenite.adapters.numpy(pool):
        last = np.full(100, 7.0)
    del pool, same
    gc.collect()
    assert last.sum() == 700


def test_a_full_pool_is_a_memory_error_of_numpy_and_is_left_as_it_was() -> None:
    pool = arenite.Pool(limit=1 << 16)
    with arenite.adapters.numpy(pool), pytest.raises(MemoryError):
        np.empty(1 << 20)
    with arenite.adapters.numpy(pool):
        assert np.ones(10).sum() == 10
    assert pool.stats()["blocks"] == 0


def test_the_handler_is_of_one_context() -> None:
    pool = arenite.Pool()
    seen: list[int] = []

    def work() -> None:
        array = np.ones(1000)
        seen.append(pool.stats()["blocks"])
        del array

    with arenite.adapters.numpy(pool):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [0]


def test_only_host_pools_serve_numpy() -> None:
    with pytest.raises(ValueError, match="mem_handler"):
        arenite._arenite._set_numpy_memory(3)

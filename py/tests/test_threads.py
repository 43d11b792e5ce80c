"""Lifetimes and threads: objects outlive what they came from; runs queue or go side by side."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import arenite


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    failures: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_a_method_outlives_its_program_and_bytes(seed_net: Any) -> None:
    data = bytearray(seed_net.path.read_bytes())
    method = arenite.Runtime.get().load_program(data).load_method("forward")
    data[:] = bytes(len(data))
    gc.collect()
    junk = [bytes([index % 256]) * 4096 for index in range(500)]
    np.testing.assert_allclose(method.execute(seed_net.inputs())[0], seed_net.outputs()[0], atol=1e-5)
    assert junk


def test_outputs_outlive_runs_and_their_method(seed_net: Any) -> None:
    method = arenite.load(seed_net.path)
    output = method.execute(seed_net.inputs())[0]
    kept = output.copy()
    method.execute([np.zeros((4, 16), np.float32)] * 2)
    del method
    gc.collect()
    np.testing.assert_array_equal(output, kept)


def test_borrowed_outputs_and_state_keep_their_method(case: Any, seed_net: Any) -> None:
    output = arenite.load(seed_net.path).execute(seed_net.inputs(), borrow_outputs=True)[0]
    state = arenite.Runtime.get().load_program(case("h02")).load_method("forward").state["state"]
    gc.collect()
    np.testing.assert_allclose(output.numpy(), seed_net.outputs()[0], atol=1e-5)
    assert state.numpy().shape == (2, 2)


def test_inputs_may_be_outputs_and_states_of_the_same_method(seed_net: Any, case: Any) -> None:
    method = arenite.load(seed_net.path)
    a, b = seed_net.inputs()
    borrowed = method.execute([a, b], borrow_outputs=True)[0]
    expected = method.execute([seed_net.outputs()[0], b])[0]
    borrowed = method.execute([a, b], borrow_outputs=True)[0]
    np.testing.assert_allclose(method.execute([borrowed, b])[0], expected, atol=1e-5)
    setter = arenite.load(case("h02"), "set_state")
    setter.execute([setter.state["state"]])


def test_runs_on_one_method_queue(seed_net: Any) -> None:
    method = arenite.load(seed_net.path)
    a, b = seed_net.inputs()
    expected = [method.execute([a * scale, b])[0] for scale in range(4)]

    def work(index: int) -> None:
        for _ in range(300):
            np.testing.assert_array_equal(method.execute([a * index, b])[0], expected[index])

    assert in_threads(4, work) == []


def test_methods_of_their_own_run_at_the_same_time(seed_net: Any) -> None:
    a, b = seed_net.inputs()

    def work(index: int) -> None:
        method = arenite.load(seed_net.path)
        expected = method.execute([a * index, b])[0]
        for _ in range(300):
            np.testing.assert_array_equal(method.execute([a * index, b])[0], expected)

    assert in_threads(4, work) == []


def test_one_program_is_loaded_from_many_threads(seed_net: Any) -> None:
    program = arenite.Runtime.get().load_program(seed_net.path)
    methods: list[arenite.Method] = []

    def work(_: int) -> None:
        methods.append(program.load_method("forward"))

    assert in_threads(8, work) == []
    assert all(method is methods[0] for method in methods)


def test_state_is_read_and_written_while_others_run(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h02"))
    setter, getter = program.load_method("set_state"), program.load_method("get_state")

    def work(index: int) -> None:
        for step in range(200):
            if index == 0:
                setter.execute([np.full((2, 2), step, np.float32)])
            elif index == 1:
                setter.state["state"] = np.full((2, 2), step, np.float32)
            elif index == 2:
                getter.execute([])
            else:
                value = getter.state["state"].numpy()
                assert (value == value[0, 0]).all() or step == 0

    assert in_threads(4, work) == []


def test_the_interpreter_runs_while_a_method_does(seed_net: Any) -> None:
    method = arenite.load(seed_net.path.with_name("chain100.pte"))
    (x,) = (np.ones(method.metadata.input_tensor_meta(0).sizes(), np.float32),)
    done = threading.Event()
    ticks = 0

    def run() -> None:
        for _ in range(2000):
            method.execute([x])
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not done.is_set():
        ticks += 1
    thread.join()
    assert ticks > 0


def test_loading_and_dropping_does_not_grow(seed_net: Any) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def cycle() -> None:
        program = arenite.Runtime.get().load_program(seed_net.path)
        program.load_method("forward").execute(seed_net.inputs())

    for _ in range(200):
        cycle()
    gc.collect()
    before = resident()
    for _ in range(2000):
        cycle()
    gc.collect()
    assert resident() - before < 4 << 20

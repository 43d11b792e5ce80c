"""Named mutable buffers: read, written, reset, shared by name and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import arenite


def method(path: Any, name: str) -> arenite.Method:
    return arenite.Runtime.get().load_program(path).load_method(name)


def test_state_is_a_mapping_of_names_to_tensors(case: Any) -> None:
    state = method(case("h02"), "forward").state
    assert list(state) == state.keys() == ["state"]
    assert len(state) == 1
    assert "state" in state and "other" not in state and 3 not in state
    assert [name for name, _ in state.items()] == ["state"]
    assert state.values()[0].shape == (2, 2)
    assert state.get("other") is None
    assert state.get("other", 5) == 5
    with pytest.raises(KeyError):
        state["other"]
    assert repr(state) == "State(state)"
    assert isinstance(state, Mapping)


def test_state_is_written_by_assigning_and_reset(case: Any) -> None:
    loaded = method(case("h02"), "forward")
    first = loaded.state["state"].numpy()
    loaded.state["state"] = np.arange(4, dtype=np.float32).reshape(2, 2)
    np.testing.assert_array_equal(loaded.state["state"].numpy(), [[0, 1], [2, 3]])
    loaded.state["state"] = np.arange(4, dtype=np.float32).reshape(2, 2).T
    np.testing.assert_array_equal(loaded.state["state"].numpy(), [[0, 2], [1, 3]])
    loaded.state["state"] = loaded.state["state"]
    loaded.reset_state()
    np.testing.assert_array_equal(loaded.state["state"].numpy(), first)


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), np.zeros((2, 2)), 3, None, "x", [[1, 2], [3, 4]]])
def test_state_of_another_kind_is_refused_and_kept(case: Any, value: Any) -> None:
    loaded = method(case("h02"), "forward")
    before = loaded.state["state"].numpy()
    with pytest.raises(arenite.InputError, match="state"):
        loaded.state["state"] = value
    with pytest.raises(KeyError, match='no state "other"; there is: state'):
        loaded.state["other"] = np.zeros((2, 2), np.float32)
    with pytest.raises(arenite.InputError):
        del loaded.state["state"]
    np.testing.assert_array_equal(loaded.state["state"].numpy(), before)


def test_methods_of_one_program_share_state_by_name(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h02"))
    writer, reader = program.load_method("set_state"), program.load_method("get_state")
    value = np.array([[1, 2], [3, 4]], np.float32)
    writer.execute([value])
    np.testing.assert_array_equal(writer.state["state"].numpy(), reader.state["state"].numpy())
    other = arenite.Runtime.get().load_program(case("h02")).load_method("get_state")
    assert not np.array_equal(other.state["state"].numpy(), reader.state["state"].numpy())


def test_share_none_keeps_state_apart(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h02"))
    arenas = arenite.ArenaSet(share="none")
    writer = program.load_method("set_state", arenas=arenas)
    reader = program.load_method("get_state", arenas=arenas)
    before = reader.state["state"].numpy()
    writer.execute([np.full((2, 2), 9, np.float32)])
    np.testing.assert_array_equal(reader.state["state"].numpy(), before)


def test_scratch_is_lent_by_turns_and_state_and_outputs_stay(seed_net: Any, case: Any) -> None:
    runtime = arenite.Runtime.get()
    paths = [seed_net.path.with_name(name) for name in ("kv.pte", "mlp.pte", "seed_net.pte", "chain100.pte")]

    def load(arenas: arenite.ArenaSet) -> list[arenite.Method]:
        return [runtime.load_program(path).load_method("forward", arenas=arenas) for path in paths]

    lent, own = arenite.ArenaSet(share="scratch"), arenite.ArenaSet()
    by_turns, apart = load(lent), load(own)
    assert lent.report().to_dict()["host"]["current_bytes"] < own.report().to_dict()["host"]["current_bytes"]
    for step in range(3):
        views, expected = [], []
        for method, other in zip(by_turns, apart, strict=True):
            meta = [method.metadata.input_tensor_meta(at) for at in range(method.metadata.num_inputs())]
            values = [np.full(kind.sizes(), 1 + step, np.float32) for kind in meta]
            if len(values) == 2 and method is by_turns[0]:
                values = [np.ones((1, 4), np.float32), np.array([step])]
            views += method.execute(values, borrow_outputs=True)
            expected += other.execute(values)
        for view, value in zip(views, expected, strict=True):
            np.testing.assert_array_equal(view.numpy(), value)


def test_state_lives_as_long_as_a_method_of_its_program(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h02"))
    program.load_method("set_state").execute([np.full((2, 2), 5, np.float32)])
    held = program.load_method("get_state").state["state"].numpy()
    again = program.load_method("get_state").state["state"].numpy()
    np.testing.assert_array_equal(held, again)


def test_a_cache_carries_from_run_to_run(seed_net: Any) -> None:
    path = seed_net.path.with_name("kv.pte")
    loaded = arenite.load(path)
    row = np.ones((1, 4), np.float32)
    first = loaded(row, np.array([0], np.int64))
    second = loaded(row, np.array([1], np.int64))
    np.testing.assert_allclose(second, 2 * first)
    loaded.reset_state()
    np.testing.assert_allclose(loaded(row, np.array([1], np.int64)), first)


def test_the_report_names_state(case: Any) -> None:
    report = method(case("h02"), "forward").memory_report().to_dict()
    assert [entry["name"] for entry in report["state"]] == ["state"]
    shared = [row for row in report["arenas"] if row["shared_with"]]
    assert shared and set(shared[0]["shared_with"]) == {"set_state", "get_state"}

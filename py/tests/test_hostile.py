"""What ordinary and odd objects once broke: each is an answer or an InputError now."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
from conftest import DATA

import arenite


@pytest.mark.parametrize("scalar", [np.longdouble(0.5), np.clongdouble(1)])
def test_a_scalar_without_a_python_number_is_refused(scalar):
    method = arenite.load(DATA / "cases/h04_scalar_inputs.pte")
    x = np.ones(3, np.float32)
    with pytest.raises(arenite.InputError, match="input 2"):
        method.execute([x, 3, scalar, True])


def test_a_scalar_that_gives_itself_is_refused():
    class Odd(np.float32):
        def item(self):
            return self

        def __array__(self, *_args, **_options):
            return self

    method = arenite.load(DATA / "seed_net.pte")
    with pytest.raises(arenite.InputError, match="input 0"):
        method.execute([Odd(1), np.ones((4, 16), np.float32)])


def test_an_interrupt_in_a_producer_is_not_an_input_error(seed_net):
    class Stops:
        def __dlpack__(self, **_options):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arenite.load(seed_net.path).execute([Stops(), seed_net.inputs()[1]])


def test_outputs_that_share_bytes_are_refused():
    method = arenite.load(DATA / "cases/h08_passthrough_outputs.pte")
    spec = method.metadata.output_tensor_meta(0)
    y = np.zeros(spec.sizes(), np.float32)
    x = np.ones_like(y)
    with pytest.raises(arenite.InputError, match="items 0 and 1 share bytes"):
        method.execute([x], out=[y, y, None, None])


def test_an_output_over_an_input_that_is_read_in_place_is_refused():
    method = arenite.load(DATA / "cases/h09_unplanned_io.pte")
    x = np.ones((2, 3), np.float32)
    with pytest.raises(arenite.InputError, match="item 0 shares bytes with input 0"):
        method.execute([x], out=[x, None])


def test_an_output_over_the_bound_is_refused_before_the_run():
    method = arenite.load(DATA / "cases/h07_dynamic_batch.pte")
    x = np.ones((2, 16), np.float32)
    wrong = np.zeros((99,) + method.execute([x, x])[0].shape[1:], np.float32)
    with pytest.raises(arenite.InputError, match="item 0: expected"):
        method.execute([x, x], out=[wrong])


def test_a_refused_load_leaves_no_shared_state_behind():
    arenas = arenite.ArenaSet(host=arenite.Host(limit=63))
    program = arenite.Runtime.get().load_program(DATA / "cases/h02_shared_state.pte")
    with pytest.raises(arenite.ArenaMemoryError):
        program.load_method("forward", arenas=arenas)
    assert "0" in str(arenas.report())
    assert arenas.report().to_dict()["host"]["current_bytes"] == 0


def test_the_command_line_never_shows_a_traceback(tmp_path):
    empty = tmp_path / "empty.npy"
    empty.touch()
    for words in (
        ["run", str(DATA / "seed_net.pte"), "--input", str(empty)],
        ["run", str(DATA / "seed_net.pte"), "--limit", "host=9" + "9" * 30],
        ["run", str(DATA / "seed_net.pte"), "--arena", "foo bar=x"],
    ):
        done = subprocess.run([sys.executable, "-m", "arenite", *words], capture_output=True, text=True)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: arenite.Host(limit=1 << 70), ValueError, "from 0 to 18446744073709551615"),
        (lambda: arenite.Host(limit=-1), ValueError, "got -1"),
        (lambda: arenite.Host(limit="1"), TypeError, "got '1'"),  # type: ignore[arg-type]
        (lambda: arenite.Cuda(70000), ValueError, "device index is an int from 0 to 65535, got 70000"),
        (lambda: arenite.Arena(arenite.Host(), 1 << 70), ValueError, "number of bytes"),
        (lambda: arenite.ArenaSet(cuda="cuda:77"), arenite.MemorySpaceError, "cuda:77"),
    ],
)
def test_numbers_out_of_range_and_names_are_told_as_such(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        make()


def test_masked_arrays_are_refused_since_their_memory_tells_no_mask(seed_net: Any) -> None:
    method, inputs = arenite.load(seed_net.path), seed_net.inputs()
    clear = [np.ma.masked_array(value) for value in inputs]
    np.testing.assert_array_equal(method.execute(clear)[0], method.execute(inputs)[0])
    clear[0][0, 0] = np.ma.masked
    with pytest.raises(arenite.InputError, match="masked array. Fill it"):
        method.execute(clear)


def test_out_and_borrow_outputs_exclude_each_other(seed_net: Any) -> None:
    method, inputs = arenite.load(seed_net.path), seed_net.inputs()
    out = [np.zeros_like(value) for value in seed_net.outputs()]
    with pytest.raises(ValueError, match="borrow_outputs"):
        method.execute(inputs, out=out, borrow_outputs=True)
    assert not out[0].any()


def test_a_space_that_only_the_reserved_memory_id_would_need_is_not_needed(seed_net: Any) -> None:
    with pytest.raises(arenite.MemorySpaceError, match="arena 1 needs 768 bytes in nvme:0"):
        arenite.load(seed_net.path, arenas={"host": "nvme:0"})


def test_arguments_without_an_end_are_refused_at_once(seed_net: Any) -> None:
    runtime = arenite.Runtime.get()
    method = arenite.load(seed_net.path)
    array = seed_net.inputs()[0]
    with pytest.raises(arenite.InputError, match="1000000000"):
        method.execute(range(10**9))  # type: ignore[arg-type]
    with pytest.raises(arenite.InputError, match="2 inputs"):
        method.execute([array] * 3)
    with pytest.raises(arenite.InputError, match="expected 1 items"):
        method.execute(seed_net.inputs(), out=itertools.repeat(None))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than 1024"):
        runtime.load_program(seed_net.path, data_path=itertools.repeat(seed_net.path))
    with pytest.raises(ValueError, match="native_code has more than 65536"):
        runtime.load_program(seed_net.path, native_code=itertools.repeat("ab" * 32))
    with pytest.raises(ValueError, match="more than 64"):
        arenite.ArenaSet(cuda=itertools.repeat(arenite.Cuda(0)))


def test_any_mapping_remaps(seed_net: Any) -> None:
    names = types.MappingProxyType({"cuda:0": "host"})
    arenite.load(seed_net.path, arenas=names)
    arenite.ArenaSet(remap=names)
    with pytest.raises(TypeError, match="by a mapping"):
        arenite.ArenaSet(remap={"cuda:0": 3})  # type: ignore[dict-item]


def test_memory_that_was_refused_is_in_no_peak(seed_net: Any) -> None:
    arenite.reset_peak()
    with pytest.raises(arenite.ArenaMemoryError) as caught:
        arenite.ArenaSet(host=arenite.Arena("host", 1 << 50))
    assert caught.value.code == 0x21 and caught.value.details["space"] == "host"
    assert (arenite.memory_stats()["host"]["peak_bytes"] or 0) < 1 << 40


def test_errors_of_state_name_the_state(case: Any) -> None:
    method = arenite.load(case("h02"), "get_state")
    for value in ([[1, 2], [3, 4]], 3, "s", None):
        with pytest.raises(arenite.InputError, match="get_state, state state: expected") as caught:
            method.state["state"] = value
        assert caught.value.code == 0x12
    with pytest.raises(arenite.InputError, match="state state: it cannot be removed"):
        del method.state["state"]


def test_the_peak_of_a_method_counts_what_is_not_planned(case: Any) -> None:
    method = arenite.load(case("h09"))
    host = method.memory_report().to_dict()["spaces"]["host"]
    assert (host["planned_bytes"], host["peak_bytes"]) == (48, 48 + 52)


def test_lent_scratch_reports_state_where_it_is(case: Any) -> None:
    arenas = arenite.ArenaSet(share="scratch")
    program = arenite.Runtime.get().load_program(case("h02"))
    report = program.load_method("forward", arenas=arenas).memory_report().to_dict()
    shared = [row for row in report["arenas"] if row["shared_with"]]
    assert [row["used_by"] for row in shared] == ["state: 1 tensor"]
    assert all(row["bytes"] for row in report["arenas"])

"""What ordinary and odd objects once broke: each is an answer or an InputError now."""

from __future__ import annotations

import re
import subprocess
import sys
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
        (lambda: arenite.Host(limit="1"), TypeError, "got 1"),  # type: ignore[arg-type]
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

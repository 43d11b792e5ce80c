"""What ordinary and odd objects once broke: each is an answer or an InputError now."""

from __future__ import annotations

import subprocess
import sys

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

"""Element kinds that NumPy lacks, tensors of our own, and DLPack out."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import arenite

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"


def test_state_tensors_share_nothing_and_owned_ones_share_their_bytes(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h02"))
    tensor = program.load_method("forward").state["state"]
    copy = tensor.copy_to("host")
    assert copy.shape == tensor.shape == (2, 2)
    view = copy.numpy()
    view[...] = 7
    np.testing.assert_array_equal(np.asarray(copy), np.full((2, 2), 7, np.float32))
    assert not np.array_equal(tensor.numpy(), np.full((2, 2), 7, np.float32))
    assert len(copy) == 2
    assert copy.strides == (2, 1)
    assert repr(copy) == "Tensor(shape=(2, 2), dtype=float32, space=host)"


def test_dlpack_gives_the_bytes_with_and_without_version(case: Any) -> None:
    tensor = arenite.load(case("h02"), "forward").state["state"].copy_to("host")
    shared = np.from_dlpack(tensor)
    tensor.numpy()[0, 0] = 42
    assert shared[0, 0] == 42
    assert tensor.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 1)))
    assert '"dltensor"' in repr(tensor.__dlpack__())
    copied = np.from_dlpack(tensor, copy=True) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else None
    if copied is not None:
        copied[0, 0] = 1
        assert tensor.numpy()[0, 0] == 42
    del tensor
    gc.collect()
    assert shared[0, 0] == 42
    with pytest.raises(BufferError):
        arenite.load(case("h02"), "forward").state["state"].__dlpack__(copy=False)


def test_array_protocol_casts_and_refuses_views_of_state(case: Any) -> None:
    state = arenite.load(case("h02"), "forward").state["state"]
    assert np.asarray(state, dtype=np.float64).dtype == np.float64
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="copied"):
            np.array(state, copy=False)


@pytest.fixture
def bf16() -> Any:
    with np.load(DATA / "bf16_net.npz") as arrays:
        return DATA / "bf16_net.pte", dict(arrays)


def test_bfloat16_goes_in_and_out_through_ml_dtypes(bf16: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path, arrays = bf16
    x, y = (arrays[f"forward.in{index}"].view(ml_dtypes.bfloat16) for index in range(2))
    low, wide = arenite.load(path).execute([x, y])
    assert low.dtype == ml_dtypes.bfloat16
    wanted = arrays["forward.out0"].view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(low.astype(np.float32), wanted, rtol=1e-2)
    np.testing.assert_allclose(wide, arrays["forward.out1"], rtol=1e-2)
    target = np.zeros_like(low)
    arenite.load(path).execute([x, y], out=[target, None])
    np.testing.assert_array_equal(target.view(np.uint16), low.view(np.uint16))


def test_bits_are_not_taken_for_bfloat16(bf16: Any) -> None:
    path, arrays = bf16
    with pytest.raises(arenite.InputError, match="input 0.*bfloat16.*uint16"):
        arenite.load(path).execute([arrays["forward.in0"], arrays["forward.in1"]])


def test_bfloat16_without_ml_dtypes_comes_as_a_tensor_with_its_bits(bf16: Any, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("ml_dtypes")
    # One process has ml_dtypes and gives DLPack capsules; it hides the package before arenite looks for it.
    code = """
import sys, ctypes, numpy as np, arenite
sys.modules["ml_dtypes"] = None
arrays = np.load(sys.argv[2])
method = arenite.load(sys.argv[1])

class Bits:
    "uint16 given as bfloat16: the element kind of the capsule is changed from (1, 16) to (4, 16)."
    def __init__(self, array):
        self.array = array
    def __dlpack__(self):
        capsule = self.array.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        pointer = get(capsule, b"dltensor")
        # data 8, device 8, ndim 4, then the kind.
        ctypes.c_uint8.from_address(pointer + 20).value = 4
        return capsule

low, wide = method.execute([Bits(arrays["forward.in0"].copy()), Bits(arrays["forward.in1"].copy())])
assert isinstance(low, arenite.Tensor), low
assert low.dtype == "bfloat16" and low.numpy().dtype == np.uint16
widen = lambda bits: (bits.astype(np.uint32) << 16).view(np.float32)
np.testing.assert_allclose(widen(low.numpy()), widen(arrays["forward.out0"]), rtol=1e-2)
again = method.execute([low, low])
assert again[0].shape == (2, 3)
print("ok")
"""
    arguments = [sys.executable, "-W", "error", "-c", code, str(bf16[0]), str(bf16[0].with_suffix(".npz"))]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (run.stdout.strip(), run.stderr) == ("ok", "")

"""Tensors on a device, on a stand-in for the driver: where bytes go and in what order. None of this is CUDA."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import arenite

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "cuda"

SETUP = f"""
import zlib, pathlib
import numpy as np
import arenite

DATA = pathlib.Path({str(DATA)!r})
arrays = np.load(DATA / "seed_net.npz")
x, y, wanted = (arrays[f"forward.{{name}}"] for name in ("in0", "in1", "out0"))

def load(name, **options):
    program = zlib.decompress((DATA / f"{{name}}.pte.z").read_bytes())
    return arenite.Runtime.get().load_program(program, **options).load_method("forward")

class Other:
    '''A tensor of another framework, as far as DLPack sees.'''
    def __init__(self, array):
        self.tensor = arenite.Tensor(array).copy_to("cuda:0")
        self.streams = []
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()
    def __dlpack__(self, **options):
        self.streams.append(options["stream"])
        return self.tensor.__dlpack__(**options)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the stand-in under the driver's name."""
    rustc = os.environ.get("RUSTC") or shutil.which("rustc")
    if rustc is None or sys.platform != "linux":
        pytest.skip("the stand-in is compiled with rustc, for Linux")
    folder = tmp_path_factory.mktemp("driver")
    words = ["--edition", "2024", "--crate-name", "fake_cuda", "--crate-type", "cdylib", "-C", "opt-level=1"]
    words += ["-C", "link-arg=-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([rustc, *words, str(ROOT / "tests" / "fake_cuda" / "fake_cuda.rs")], check=True)
    return folder


def run(driver: pathlib.Path, body: str) -> None:
    """Runs Python in a process of its own that finds the stand-in."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver)}
    words = [sys.executable, "-W", "error", "-c", SETUP + body]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_tensor_holds_a_copy_of_an_array() -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    tensor = arenite.Tensor(array.T)
    array[:] = 0
    assert tensor.shape == (4, 3) and tensor.dtype == "int16" and tensor.space == "host"
    assert np.array_equal(tensor.numpy(), np.arange(12).reshape(3, 4).T)
    assert arenite.Tensor(2.5).numpy() == 2.5
    with pytest.raises(ValueError, match="kind or byte order"):
        arenite.Tensor(np.array(["text"]))


def test_a_tensor_goes_to_a_device_and_comes_back(driver: pathlib.Path) -> None:
    run(
        driver,
        """
tensor = arenite.Tensor(x).copy_to("cuda:0")
assert (tensor.space, tensor.__dlpack_device__(), tensor.shape) == ("cuda:0", (2, 0), (4, 16))
assert np.array_equal(tensor.numpy(), x) and np.array_equal(np.asarray(tensor), x)
assert np.array_equal(tensor.copy_to("host").numpy(), x)
assert np.array_equal(np.from_dlpack(tensor.copy_to("host")), x)
host = tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 1))
for wrong in ({"dl_device": (2, 1)}, {"copy": True}):
    try:
        tensor.__dlpack__(**wrong)
    except BufferError:
        continue
    raise AssertionError(wrong)
try:
    np.asarray(tensor, copy=False)
except (ValueError, TypeError):
    pass
else:
    raise AssertionError("a view of a device")
try:
    tensor.copy_to("cuda:9")
except arenite.MemorySpaceError as error:
    assert "cuda:9" in str(error)
""",
    )


def test_outputs_stay_where_the_inputs_are(driver: pathlib.Path) -> None:
    run(
        driver,
        """
method = load("resident_net")
(host,) = method.execute([x, y])
assert isinstance(host, np.ndarray) and np.array_equal(host, wanted)
inputs = [arenite.Tensor(array).copy_to("cuda:0") for array in (x, y)]
kept = []
for _ in range(20):
    (output,) = method.execute(inputs)
    assert output.space == "cuda:0"
    kept = (kept + [output])[-6:]
assert all(np.array_equal(output.numpy(), wanted) for output in kept)
again = method(kept[0], inputs[1])
assert np.allclose(again.numpy(), np.maximum(wanted * y + wanted, 0) * 2)
del method
assert np.array_equal(kept[-1].numpy(), wanted)
# A program with host memory at both ends takes device tensors too.
(output,) = load("seed_net").execute(inputs)
assert isinstance(output, np.ndarray) and np.array_equal(output, wanted)
""",
    )


def test_producers_are_told_the_stream(driver: pathlib.Path) -> None:
    run(
        driver,
        """
method = load("resident_net")
inputs = [Other(array) for array in (x, y)]
for _ in range(3):
    (output,) = method.execute(inputs)
    assert np.array_equal(output.numpy(), wanted)
(own,) = set(inputs[0].streams)
assert own > 2 and set(inputs[1].streams) == {own}

class Stream:
    cuda_stream = 4242

for stream, told in ((4242, 4242), (Stream(), 4242), (0, 1), (1, 1)):
    (output,) = method.execute(inputs, stream=stream)
    assert inputs[0].streams[-1] == told, (stream, inputs[0].streams)
    assert np.array_equal(output.numpy(), wanted)
for index in range(100):
    (output,) = method.execute([Other(x), Other(y)], stream=4242)
assert np.array_equal(output.numpy(), wanted)
""",
    )


def test_native_code_runs_only_where_it_may(driver: pathlib.Path) -> None:
    run(
        driver,
        """
program = zlib.decompress((DATA / "seed_net.pte.z").read_bytes())
named = arenite.Runtime.get().load_program(program).inspect()["named_data"]
digest = next(entry["key"][:64] for entry in named if entry["key"].endswith("_so_blob"))
for rule in ("deny", [], ["0" * 64]):
    try:
        load("seed_net", native_code=rule)
    except arenite.UnsupportedDelegate as error:
        assert digest in str(error), error
        continue
    raise AssertionError(rule)
for rule in ("allow", None, [digest], {digest, "0" * 64}):
    (output,) = load("seed_net", native_code=rule).execute([x, y])
    assert np.array_equal(output, wanted)
""",
    )


@pytest.mark.parametrize("rule", ["maybe", ["short"], ["g" * 64], 7])
def test_a_rule_for_native_code_is_checked_at_once(rule: object) -> None:
    with pytest.raises((ValueError, TypeError), match="native_code"):
        arenite.Runtime.get().load_program(ROOT / "tests" / "data" / "seed_net.pte", native_code=rule)

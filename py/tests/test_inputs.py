"""Inputs of every layout and kind: right, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenite


class Exchanged:
    """A tensor of another framework: nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OldExchanged(Exchanged):
    """As before DLPack 1.0: takes no version."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


def forms(x: Any) -> dict[str, Any]:
    """The same values in every layout that NumPy can give them."""
    read_only = x.copy()
    read_only.flags.writeable = False
    big = np.zeros((2 * x.shape[0], 2 * x.shape[1]), x.dtype)
    big[::2, ::2] = x
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    return {
        "plain": x,
        "read-only": read_only,
        "column order": np.asfortranarray(x),
        "strided": big[::2, ::2],
        "negative strides": x[::-1, ::-1].copy()[::-1, ::-1],
        "unaligned": unaligned,
        "transposed": np.ascontiguousarray(x.T).T,
        "subclass": x.view(type("Sub", (np.ndarray,), {})),
        "dlpack": Exchanged(x),
        "dlpack, strided": Exchanged(np.asfortranarray(x)),
        "dlpack, unversioned": OldExchanged(x),
    }


@pytest.mark.parametrize("form", list(forms(np.zeros((4, 16), np.float32))))
def test_layouts_give_the_same_result(seed_net: Any, form: str) -> None:
    a, b = seed_net.inputs()
    given = forms(a)[form]
    kept = a.copy()
    outputs = arenite.load(seed_net.path).execute([given, b])
    np.testing.assert_allclose(outputs[0], seed_net.outputs()[0], atol=1e-5)
    np.testing.assert_array_equal(a, kept)


def test_a_broadcast_array_with_zero_strides_is_read_right(seed_net: Any) -> None:
    row = np.arange(16, dtype=np.float32)
    method = arenite.load(seed_net.path)
    broadcast = np.broadcast_to(row, (4, 16))
    expected = method.execute([np.ascontiguousarray(broadcast), broadcast.copy()])[0]
    np.testing.assert_array_equal(method.execute([broadcast, broadcast])[0], expected)


@pytest.mark.parametrize("sequence", [list, tuple, lambda items: UserSequence(items)])
def test_inputs_are_any_sequence(seed_net: Any, sequence: Any) -> None:
    outputs = arenite.load(seed_net.path).execute(sequence(seed_net.inputs()))
    np.testing.assert_allclose(outputs[0], seed_net.outputs()[0], atol=1e-5)


class UserSequence:
    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


from collections.abc import Sequence as _Sequence  # noqa: E402

_Sequence.register(UserSequence)


@pytest.mark.parametrize("inputs", [3, None, "ab", np.zeros((1, 4, 16), np.float32), {1: 2}, object()])
def test_what_is_no_sequence_of_inputs_is_refused(seed_net: Any, inputs: Any) -> None:
    with pytest.raises(arenite.InputError, match="forward: expected a list of 2 values"):
        arenite.load(seed_net.path).execute(inputs)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (np.zeros((4, 16), ">f4"), ["float32", "byte order", ">f4"]),
        (np.zeros((4, 16)), ["float32", "float64"]),
        (np.zeros((4, 16), object), ["float32", "object"]),
        (np.zeros((4, 16), "datetime64[s]"), ["float32", "datetime64[s]"]),
        (np.zeros((4, 16), "S3"), ["float32", "S3"]),
        ([[1.0]], ["float32", "list"]),
        ({}, ["dict"]),
        (b"ab", ["bytes"]),
        (3, ["int"]),
        (2**70, ["int"]),
        (0.5, ["float"]),
        (True, ["bool"]),
        ("x", ["str"]),
        (None, ["None"]),
        (np.zeros((4, 15), np.float32), ["(4, 16)", "(4, 15)"]),
        (np.zeros((16, 4), np.float32), ["(4, 16)", "(16, 4)"]),
        (np.zeros(64, np.float32), ["(4, 16)", "(64,)"]),
        (np.float32(1), ["(4, 16)", "()"]),
    ],
)
def test_what_does_not_fit_is_refused_by_name(seed_net: Any, item: Any, words: list[str]) -> None:
    method = arenite.load(seed_net.path)
    with pytest.raises(arenite.InputError) as caught:
        method.execute([item, seed_net.inputs()[1]])
    text = str(caught.value)
    assert text.startswith("forward, input 0: ")
    for word in words:
        assert word in text
    assert "\n" not in text
    assert "0x" not in text
    assert isinstance(caught.value, ValueError)
    assert (caught.value.kind, caught.value.method) == ("InputError", "forward")
    np.testing.assert_allclose(method.execute(seed_net.inputs())[0], seed_net.outputs()[0], atol=1e-5)


def test_a_wrong_count_names_both(seed_net: Any) -> None:
    with pytest.raises(arenite.InputError, match="forward: expected 2 inputs, got 1"):
        arenite.load(seed_net.path).execute(seed_net.inputs()[:1])


def test_more_inputs_than_fit_inline_are_counted(seed_net: Any) -> None:
    with pytest.raises(arenite.InputError, match="got 40"):
        arenite.load(seed_net.path).execute([1] * 40)


def test_frozen_scalars_come_as_python_or_numpy_numbers(case: Any) -> None:
    method = arenite.load(case("h04"))
    x = np.ones(3, np.float32)
    expected = method.execute([x, 3, 0.5, True])
    got = method.execute([x, np.int64(3), np.float64(0.5), np.bool_(True)])
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(arenite.InputError, match="input 1.*3.*4"):
        method.execute([x, 4, 0.5, True])


def test_a_numpy_scalar_is_a_tensor_without_dimensions(case: Any) -> None:
    method = arenite.Runtime.get().load_program(case("h01")).load_method("decode")
    with np.load(case("h01").with_suffix(".npz")) as arrays:
        x = next(array for array in arrays.values() if array.shape == (2, 4))
    as_array = method.execute([x, np.array(2, np.float32)])
    as_scalar = method.execute([x, np.float32(2)])
    for one, other in zip(as_array, as_scalar, strict=True):
        np.testing.assert_array_equal(one, other)


def test_zero_sized_inputs_and_outputs_pass(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h07"))
    x = np.zeros((0, 16), np.float32)
    (output,) = program.load_method("forward").execute([x, x])
    assert output.shape == (0, 16)
    target = np.zeros((0, 16), np.float32)
    assert program.load_method("forward").execute([x, x], out=[target])[0] is target


def test_a_dynamic_output_must_fit_its_array(seed_net_dyn: Any) -> None:
    method = arenite.load(seed_net_dyn.path)
    inputs = seed_net_dyn.inputs()
    wanted = method.execute(inputs)[0]
    target = np.zeros_like(wanted)
    method.execute(inputs, out=[target])
    np.testing.assert_array_equal(target, wanted)
    with pytest.raises(arenite.InputError, match="item 0"):
        method.execute(inputs, out=[np.zeros((wanted.shape[0] + 1, *wanted.shape[1:]), np.float32)])


def test_a_producer_that_fails_is_named(seed_net: Any) -> None:
    class Broken:
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("on the moon")

    with pytest.raises(arenite.InputError, match="input 1.*on the moon") as caught:
        arenite.load(seed_net.path).execute([seed_net.inputs()[0], Broken()])
    assert isinstance(caught.value.__cause__, BufferError)


def test_a_capsule_is_taken_once(seed_net: Any) -> None:
    class Twice:
        def __init__(self, array: Any) -> None:
            self.capsule = array.__dlpack__()

        def __dlpack__(self, **options: Any) -> Any:
            return self.capsule

    a, b = seed_net.inputs()
    method, twice = arenite.load(seed_net.path), Twice(a)
    method.execute([twice, b])
    with pytest.raises(arenite.InputError, match="input 0"):
        method.execute([twice, b])


def test_no_reference_is_kept_to_inputs(seed_net: Any) -> None:
    import sys

    a, b = seed_net.inputs()
    method = arenite.load(seed_net.path)
    exchanged = Exchanged(a)
    method.execute([exchanged, b])
    before = sys.getrefcount(a), sys.getrefcount(b)
    for _ in range(100):
        method.execute([exchanged, b])
        method.execute([a, b])
        with pytest.raises(arenite.InputError):
            method.execute([exchanged, None])
    assert (sys.getrefcount(a), sys.getrefcount(b)) == before

"""The verbs of executorch.runtime, and the shorter ones."""

from __future__ import annotations

import gc
import io
import pathlib
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import arenite


def test_the_drop_in_runs_and_matches_eager(seed_net: Any) -> None:
    program = arenite.Runtime.get().load_program(str(seed_net.path), data_path=None)
    method = program.load_method("forward")
    for _ in range(2):
        outputs = method.execute(seed_net.inputs())
        assert isinstance(outputs, list)
        np.testing.assert_allclose(outputs[0], seed_net.outputs()[0], atol=1e-5)


def test_load_takes_the_only_method_and_a_call_gives_one_output_bare(seed_net: Any) -> None:
    method = arenite.load(seed_net.path)
    y = method(*seed_net.inputs())
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, seed_net.outputs()[0], atol=1e-5)


def test_a_call_gives_several_outputs_as_a_tuple_and_scalars_bare(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h03"))
    assert program.load_method("ids")() == (1, 2, 3)
    assert program.load_method("name")() == "abc"
    assert program.load_method("use_kv")() is True
    assert program.load_method("eps")() == 1e-05


@pytest.mark.parametrize("form", ["str", "Path", "bytes", "bytearray", "memoryview", "file", "unmapped"])
def test_a_program_comes_from_paths_bytes_and_files(seed_net: Any, form: str) -> None:
    data = seed_net.path.read_bytes()
    sources: dict[str, Any] = {
        "str": str(seed_net.path),
        "Path": seed_net.path,
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "file": io.BytesIO(data),
        "unmapped": seed_net.path,
    }
    program = arenite.Runtime.get().load_program(sources[form], mmap=form != "unmapped")
    outputs = program.load_method("forward").execute(seed_net.inputs())
    np.testing.assert_allclose(outputs[0], seed_net.outputs()[0], atol=1e-5)


def test_the_keywords_of_executorch_are_taken(seed_net: Any) -> None:
    program = arenite.Runtime.get().load_program(
        seed_net.path,
        verification=arenite.Verification.Minimal,
        enable_etdump=False,
        debug_buffer_size=0,
        verify=True,
    )
    assert program.method_names == {"forward"}


@pytest.mark.parametrize("data", [3, None, object(), ["a.pte"]])
def test_what_is_no_program_source_is_a_type_error(data: Any) -> None:
    with pytest.raises(TypeError, match="expected a path, bytes or a binary file"):
        arenite.Runtime.get().load_program(data)


def test_data_files_come_as_path_bytes_or_list(case: Any) -> None:
    weights = case("h13").with_suffix(".weights.ptd")
    x = np.ones((2, 4), np.float32)
    results = []
    for data in (weights, str(weights), weights.read_bytes(), [weights], (str(weights),)):
        program = arenite.Runtime.get().load_program(case("h13"), data_path=data)
        results.append(program.load_method("forward").execute([x])[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_runtime_is_one_object_with_registries() -> None:
    runtime = arenite.Runtime.get()
    assert runtime is arenite.Runtime.get()
    names = runtime.operator_registry.operator_names
    assert names == sorted(set(names))
    assert "aten::add.out" in names
    assert isinstance(runtime.backend_registry.registered_backend_names, list)
    assert not runtime.backend_registry.is_available("NoSuchBackend")


def test_spaces_say_what_is_there_and_why_not() -> None:
    spaces = arenite.Runtime.get().spaces
    assert spaces["host"].available
    assert spaces["host"].reason is None
    for space in spaces.values():
        assert space.available or space.reason


def test_metadata_has_the_members_of_executorch(seed_net: Any) -> None:
    program = arenite.Runtime.get().load_program(seed_net.path)
    meta = program.metadata("forward")
    assert (meta.name(), meta.num_inputs(), meta.num_outputs()) == ("forward", 2, 1)
    info = meta.input_tensor_meta(0)
    assert (info.sizes(), info.dtype(), info.is_memory_planned(), info.nbytes()) == ((4, 16), 6, True, 256)
    assert info.dtype_name() == "float32"
    assert meta.output_tensor_meta(0).sizes() == (4, 16)
    assert program.load_method("forward").metadata.num_inputs() == 2
    with pytest.raises(IndexError):
        meta.input_tensor_meta(2)
    with pytest.raises(TypeError):
        meta.input_tensor_meta(-1)
    assert "float32 tensor of shape (4, 16)" in repr(meta)


def test_metadata_of_a_scalar_input_is_an_index_error(case: Any) -> None:
    meta = arenite.Runtime.get().load_program(case("h04")).metadata("forward")
    with pytest.raises(IndexError, match="int 3, not a tensor"):
        meta.input_tensor_meta(1)
    assert meta.example_input(1) == 3
    assert meta.example_input(3) is True


def test_a_method_is_cached_while_it_lives_and_no_longer(seed_net: Any) -> None:
    program = arenite.Runtime.get().load_program(seed_net.path)
    method = program.load_method("forward")
    assert program.load_method("forward") is method
    own = program.load_method("forward", arenas=arenite.ArenaSet())
    assert own is not method
    before = arenite.memory_stats()["host"]["current_bytes"]
    del method, own
    gc.collect()
    after = arenite.memory_stats()["host"]["current_bytes"]
    assert before is not None and after is not None
    assert after < before


def test_a_closed_program_refuses_and_its_methods_go_on(seed_net: Any) -> None:
    with arenite.Runtime.get().load_program(seed_net.path) as program:
        method = program.load_method("forward")
    with pytest.raises(arenite.Busy, match="closed"):
        program.load_method("forward")
    with pytest.raises(arenite.Busy):
        program.method_names  # noqa: B018
    np.testing.assert_allclose(method.execute(seed_net.inputs())[0], seed_net.outputs()[0], atol=1e-5)


def test_nothing_is_missing_for_a_program_that_runs(seed_net: Any) -> None:
    missing = arenite.Runtime.get().load_program(seed_net.path).missing()
    assert not missing
    assert missing.to_dict() == {"operators": [], "delegates": [], "spaces": [], "data": []}


def test_missing_names_absent_data_and_spaces(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h13"))
    assert program.missing().data
    cuda = arenite.Runtime.get().load_program(case("h16"))
    if not arenite.Runtime.get().spaces["cuda:0"].available:
        assert cuda.missing("forward").spaces == ["cuda:0"]


def test_out_fills_the_arrays_of_the_caller(seed_net: Any) -> None:
    method = arenite.load(seed_net.path)
    target = np.zeros((4, 16), np.float32)
    outputs = method.execute(seed_net.inputs(), out=[target])
    assert outputs[0] is target
    np.testing.assert_allclose(target, seed_net.outputs()[0], atol=1e-5)
    assert isinstance(method.execute(seed_net.inputs(), out=[None])[0], np.ndarray)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ([], "expected 1 items, got 0"),
        ([np.zeros((4, 16))], "float64"),
        ([np.zeros((16, 4), np.float32)], "(16, 4)"),
        ([np.zeros((16, 4), np.float32).T], "C-contiguous"),
        ([3], "got int"),
        (np.zeros((4, 16), np.float32), "expected a list"),
    ],
)
def test_out_that_does_not_fit_is_refused_before_the_run(seed_net: Any, out: Any, words: str) -> None:
    method = arenite.load(seed_net.path)
    with pytest.raises(arenite.InputError) as caught:
        method.execute(seed_net.inputs(), out=out)
    assert words in str(caught.value)
    frozen = np.zeros((4, 16), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(arenite.InputError, match="writable"):
        method.execute(seed_net.inputs(), out=[frozen])


def test_borrowed_outputs_are_good_until_the_next_run(seed_net: Any) -> None:
    method = arenite.load(seed_net.path)
    output = method.execute(seed_net.inputs(), borrow_outputs=True)[0]
    assert isinstance(output, arenite.Tensor)
    assert (output.shape, output.dtype, output.space, output.nbytes) == ((4, 16), "float32", "host", 256)
    np.testing.assert_allclose(output.numpy(), seed_net.outputs()[0], atol=1e-5)
    kept = np.asarray(output)
    method.execute(seed_net.inputs())
    for use in (output.numpy, lambda: np.asarray(output), lambda: np.from_dlpack(output)):
        with pytest.raises(arenite.StaleOutput, match="output 0"):
            use()
    np.testing.assert_allclose(kept, seed_net.outputs()[0], atol=1e-5)


def test_arenas_are_those_of_the_plan(seed_net: Any) -> None:
    method = arenite.load(seed_net.path)
    (arena,) = method.arenas
    assert (arena.index, arena.space, arena.bytes) == (1, "host", 768)


def test_a_remap_runs_a_host_program_that_was_planned_elsewhere(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h16"))
    method = program.load_method("forward", arenas={"cuda:0": "host"})
    with np.load(case("h16").with_suffix(".npz")) as arrays:
        np.testing.assert_allclose(method(arrays["a0"]), arrays["a1"], atol=1e-5)
    assert [arena.space for arena in method.arenas] == ["host"]


def test_one_remapping_is_one_set_of_arenas(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h02"))
    remap = {"cuda:0": "host"}
    program.load_method("set_state", arenas=remap).execute([np.full((2, 2), 3, np.float32)])
    kept = program.load_method("get_state", arenas=dict(remap)).state["state"].numpy()
    assert not np.array_equal(kept, program.load_method("get_state").state["state"].numpy())
    np.testing.assert_array_equal(kept, program.load_method("set_state", arenas=remap).state["state"].numpy())


def test_arena_sets_that_nobody_keeps_are_given_up(seed_net: Any) -> None:
    program = arenite.Runtime.get().load_program(seed_net.path)
    gc.collect()
    before = arenite.memory_stats()["host"]
    sets = [arenite.ArenaSet(host=arenite.Arena(arenite.Host(), 1 << 20)) for _ in range(3)]
    for arenas in sets:
        program.load_method("forward", arenas=arenas)
    kept = weakref.ref(sets[0])
    del sets, arenas
    gc.collect()
    assert kept() is None
    stats = arenite.memory_stats()["host"]
    assert stats["current_bytes"] == before["current_bytes"] and stats["live_arenas"] == before["live_arenas"]
    assert (stats["peak_bytes"] or 0) >= 1 << 20, "the peak of a set that is gone is still the process's"


def test_the_peak_is_of_all_sets_together(seed_net: Any) -> None:
    program = arenite.Runtime.get().load_program(seed_net.path)
    arenite.reset_peak()
    base = arenite.memory_stats()["host"]["current_bytes"] or 0
    for _ in range(3):
        method = program.load_method("forward", arenas=arenite.ArenaSet())
        one = (arenite.memory_stats()["host"]["current_bytes"] or 0) - base
        del method
        gc.collect()
    assert arenite.memory_stats()["host"]["peak_bytes"] == base + one
    both = [program.load_method("forward", arenas=arenite.ArenaSet()) for _ in range(2)]
    assert arenite.memory_stats()["host"]["peak_bytes"] == base + 2 * one
    del both


def test_an_arena_set_limits_and_reports(seed_net: Any) -> None:
    arenas = arenite.ArenaSet(host=arenite.Host(limit=100))
    program = arenite.Runtime.get().load_program(seed_net.path)
    with pytest.raises(arenite.ArenaMemoryError) as caught:
        program.load_method("forward", arenas=arenas)
    assert isinstance(caught.value, MemoryError)
    assert "768" in str(caught.value) and "100" in str(caught.value)
    assert arenas.report().to_dict()["host"]["current_bytes"] == 0

    roomy = arenite.ArenaSet(host=arenite.Arena(arenite.Host(), 1 << 16))
    assert roomy.report().to_dict()["host"]["idle_bytes"] >= 1 << 16
    method = program.load_method("forward", arenas=roomy)
    assert roomy.report().to_dict()["host"]["current_bytes"] >= 768
    del method
    gc.collect()
    assert roomy.trim() >= 1 << 16
    roomy.close()
    with pytest.raises(arenite.Error):
        program.load_method("forward", arenas=roomy)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: arenite.ArenaSet(share="everything"), ValueError),  # type: ignore[arg-type]
        (lambda: arenite.ArenaSet(staging="fast"), ValueError),  # type: ignore[arg-type]
        (lambda: arenite.ArenaSet(remap={"no space": "host"}), ValueError),
        (lambda: arenite.ArenaSet(host=3), TypeError),  # type: ignore[arg-type]
        (lambda: arenite.Arena(arenite.Host(), 10, align=3), ValueError),
    ],
)
def test_arena_sets_refuse_what_they_cannot_be(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_memory_stats_count_what_methods_hold(seed_net: Any) -> None:
    gc.collect()
    arenite.reset_peak()
    before = arenite.memory_stats()["host"]
    method = arenite.load(seed_net.path)
    during = arenite.memory_stats()["host"]
    assert set(during) == {"current_bytes", "peak_bytes", "limit", "live_arenas"}
    assert (during["current_bytes"] or 0) >= (before["current_bytes"] or 0) + 768
    assert (during["live_arenas"] or 0) > (before["live_arenas"] or 0)
    del method
    gc.collect()
    assert arenite.memory_stats()["host"]["current_bytes"] == before["current_bytes"]
    assert (arenite.memory_stats()["host"]["peak_bytes"] or 0) >= 768
    arenite.reset_peak()


def test_reports_print_and_count(seed_net: Any) -> None:
    method = arenite.load(seed_net.path)
    report = method.memory_report()
    assert "forward" in str(report) and "768" in str(report)
    facts = report.to_dict()
    assert facts["arenas"][0]["bytes"] == 768
    assert facts["spaces"]["host"]["peak_bytes"] == 768
    assert report._repr_html_().startswith("<pre>")
    program = arenite.Runtime.get().load_program(seed_net.path)
    assert set(program.memory_report().to_dict()) == {"forward"}
    assert program.memory_report("forward").to_dict()["method"] == "forward"


def test_an_error_survives_pickling() -> None:
    with pytest.raises(arenite.ProgramFormatError) as caught:
        arenite.Runtime.get().load_program(b"not a program")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is arenite.ProgramFormatError
    assert str(again) == str(caught.value)


def test_files_are_found_beside_the_caller(seed_net: Any, monkeypatch: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.pte").write_bytes(seed_net.path.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert arenite.load("m.pte").name == "forward"

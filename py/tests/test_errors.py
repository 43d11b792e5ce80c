"""Classes, fields and words of errors; nothing on standard error."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import arenite

BASES = {
    "ProgramFormatError": (),
    "UnsupportedProgram": (),
    "MissingOperators": (arenite.UnsupportedProgram,),
    "UnsupportedDelegate": (arenite.UnsupportedProgram,),
    "PlanError": (),
    "MemorySpaceError": (),
    "ArenaMemoryError": (MemoryError,),
    "ExternalDataError": (),
    "InputError": (ValueError,),
    "KernelError": (),
    "MethodNotFound": (KeyError,),
    "StaleOutput": (),
    "Busy": (),
}


@pytest.mark.parametrize("name", list(BASES))
def test_every_class_is_an_error_with_fields(name: str) -> None:
    cls = getattr(arenite, name)
    for base in (arenite.Error, RuntimeError, *BASES[name]):
        assert issubclass(cls, base)
    error = cls("a sentence")
    assert str(error) == "a sentence"
    assert (error.kind, error.method) == (name, None)
    assert cls.__module__ == "arenite"
    assert cls.__doc__


def test_a_missing_method_lists_those_there_and_prints_plain(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h01"))
    with pytest.raises(KeyError) as caught:
        program.load_method("nope")
    text = str(caught.value)
    assert "nope" in text and "encode" in text and "decode" in text
    assert not text.startswith(("'", '"'))
    assert isinstance(caught.value, arenite.MethodNotFound)
    assert caught.value.code == 0x12
    for call in (program.metadata, program.memory_report, program.missing, program.inspect):
        with pytest.raises(arenite.MethodNotFound):
            call("nope")
    with pytest.raises(arenite.MethodNotFound, match="encode"):
        arenite.load(case("h01"))


@pytest.mark.parametrize("keyword", ["data", "data_path"])
def test_a_missing_file_is_named(seed_net: Any, tmp_path: pathlib.Path, keyword: str) -> None:
    absent = str(tmp_path / "no_such.pte")
    runtime = arenite.Runtime.get()
    with pytest.raises(FileNotFoundError, match="no_such.pte") as caught:
        if keyword == "data":
            runtime.load_program(absent)
        else:
            runtime.load_program(seed_net.path, data_path=[absent])
    assert caught.value.filename == absent


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"PK\x03\x04" + bytes(100), "zip"),
        (b"hello, this is text" * 10, "program"),
    ],
)
def test_what_is_no_program_is_called_what_it_is(data: bytes, words: str) -> None:
    with pytest.raises(arenite.ProgramFormatError) as caught:
        arenite.Runtime.get().load_program(data)
    assert words in str(caught.value)
    assert caught.value.code != 0


def test_a_folder_and_a_data_file_are_no_programs(case: Any, tmp_path: pathlib.Path) -> None:
    runtime = arenite.Runtime.get()
    with pytest.raises(arenite.ProgramFormatError, match="directory"):
        runtime.load_program(tmp_path)
    with pytest.raises(arenite.ProgramFormatError, match="ptd"):
        runtime.load_program(case("h13").with_suffix(".weights.ptd"))


def test_cut_programs_are_refused_at_every_length(seed_net: Any) -> None:
    data = seed_net.path.read_bytes()
    refused = 0
    for length in range(0, len(data), 7):
        try:
            arenite.Runtime.get().load_program(data[:length]).load_method("forward").execute(seed_net.inputs())
        except arenite.Error:
            refused += 1
    assert refused > len(data) // 14


def test_absent_weights_are_named_when_a_method_is_loaded(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h13"))
    with pytest.raises(arenite.ExternalDataError) as caught:
        program.load_method("forward")
    for key in program.missing().data:
        assert key in str(caught.value)


@pytest.mark.skipif(arenite.Runtime.get().spaces["cuda:0"].available, reason="there is a GPU")
def test_an_absent_space_is_named_with_its_bytes(case: Any) -> None:
    program = arenite.Runtime.get().load_program(case("h16"))
    before = arenite.memory_stats()
    with pytest.raises(arenite.MemorySpaceError) as caught:
        program.load_method("forward")
    text = str(caught.value)
    for word in ("forward", "arena 1", "2816", "cuda:0"):
        assert word in text
    assert caught.value.details["space"] == "cuda:0"
    assert caught.value.details["needed_bytes"] == "2816"
    assert caught.value.method == "forward"
    assert arenite.memory_stats() == before


def test_a_failed_run_says_where_and_leaves_the_method_usable(seed_net_dyn: Any) -> None:
    method = arenite.load(seed_net_dyn.path)
    x, y = seed_net_dyn.inputs()
    with pytest.raises(arenite.Error) as caught:
        method.execute([x[:2], y[:1].repeat(3, axis=0)])
    assert "(2, 16)" in str(caught.value) and "(3, 16)" in str(caught.value)
    np.testing.assert_allclose(method.execute([x, y])[0], seed_net_dyn.outputs()[0], atol=1e-5)


def test_a_bound_that_is_passed_names_the_dimension(case: Any) -> None:
    method = arenite.load(case("h07"))
    x = np.zeros((9, 16), np.float32)
    with pytest.raises(arenite.InputError, match="input 0.*dim 0 is 9.*8"):
        method.execute([x, x])


def test_errors_print_nothing_by_themselves(case: Any, tmp_path: pathlib.Path) -> None:
    code = """
import arenite, sys
runtime = arenite.Runtime.get()
for attempt in (
    lambda: runtime.load_program(b"junk"),
    lambda: runtime.load_program("absent.pte"),
    lambda: runtime.load_program(sys.argv[1]).load_method("nope"),
    lambda: runtime.load_program(sys.argv[1]).load_method("forward").execute([1, 2]),
    lambda: arenite.ArenaSet(host=3),
):
    try:
        attempt()
    except (arenite.Error, OSError, TypeError):
        pass
    else:
        raise SystemExit("no error")
"""
    arguments = [sys.executable, "-W", "error", "-c", code, str(case("h07"))]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_a_host_method_cannot_be_captured_and_says_so(seed_net):
    with pytest.raises(arenite.Error, match="no work on a device|runs on the host"):
        arenite.Runtime.get().load_program(seed_net.path).load_method("forward", graph=True)
    method = arenite.load(seed_net.path)
    with pytest.raises(arenite.Error, match="forward"):
        method.capture()
    assert not method.is_captured
    method.discard_graph()
    assert len(method.execute(seed_net.inputs())) == 1

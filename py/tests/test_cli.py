"""The command line: what it prints, and its exit codes."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.__main__ import main
from facts import within

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
FACTS = json.loads((DATA / "facts.json").read_text())


@pytest.mark.parametrize("name", list(FACTS))
def test_inspect_has_every_fact(name: str, capsys: Any) -> None:
    code = main(["inspect", str(DATA / name), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema_version"] == 0
    for method in facts["methods"].values():
        assert all("." in operator for operator in method["operators"])
        method["operators"] = [operator.removesuffix(".") for operator in method["operators"]]
    within(FACTS[name], facts["methods"], name)
    missing = any(facts["missing"].values())
    assert code == (3 if missing else 0)


@pytest.mark.parametrize("name", list(FACTS))
def test_inspect_prints_every_method(name: str, capsys: Any) -> None:
    main(["inspect", str(DATA / name), "--tensors"])
    text = capsys.readouterr().out
    for method, facts in FACTS[name].items():
        assert f"\n{method}   " in text
        for operator in facts["operators"]:
            assert operator in text


def test_inspect_says_what_loading_takes_and_just_that_is_enough(case: Any, capsys: Any) -> None:
    assert main(["inspect", str(case("h09"))]) == 0
    assert "needs    256 bytes in host: planned 64, staging 192" in capsys.readouterr().out
    program = arenite.Runtime.get().load_program(case("h09"))
    program.load_method("forward", arenas=arenite.ArenaSet(host=arenite.Host(limit=256)))
    with pytest.raises(arenite.ArenaMemoryError, match="255"):
        program.load_method("forward", arenas=arenite.ArenaSet(host=arenite.Host(limit=255)))


def test_inspect_of_one_method_and_of_none(case: Any, capsys: Any) -> None:
    assert main(["inspect", str(case("h01")), "--method", "encode"]) == 0
    text = capsys.readouterr().out
    assert "encode" in text and "decode" not in text
    assert main(["inspect", str(case("h01")), "--method", "nope"]) == 1
    assert "MethodNotFound" in capsys.readouterr().err


def test_inspect_needs_no_data_files_and_says_what_is_missing(case: Any, capsys: Any) -> None:
    assert main(["inspect", str(case("h13"))]) == 3
    text = capsys.readouterr().out
    assert "missing here" in text and "weight" in text
    weights = str(case("h13").with_suffix(".weights.ptd"))
    assert main(["inspect", str(case("h13")), "--data", weights]) == 0
    assert "missing here" not in capsys.readouterr().out


@pytest.mark.skipif(arenite.Runtime.get().spaces["cuda:0"].available, reason="there is a GPU")
def test_inspect_of_a_program_for_an_absent_space(case: Any, capsys: Any) -> None:
    assert main(["inspect", str(case("h16"))]) == 3
    assert "2816 bytes in cuda:0" in capsys.readouterr().out


def test_inspect_shows_state_and_sharing(case: Any, capsys: Any) -> None:
    main(["inspect", str(case("h02"))])
    text = capsys.readouterr().out
    assert "state    state  float32 (2, 2), initial values in the file, shared with" in text


def test_run_prints_shapes_and_a_digest(seed_net: Any, capsys: Any) -> None:
    words = ["run", str(seed_net.path), "--input", "ones:4x16:float32", "--input", "ones:4x16"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert first.startswith("out0  float32 (4, 16)  sha256:")
    assert main(words) == 0
    assert capsys.readouterr().out == first


def test_run_reads_files_compares_and_writes(seed_net: Any, tmp_path: pathlib.Path, capsys: Any) -> None:
    a, b = seed_net.inputs()
    np.save(tmp_path / "a.npy", a)
    archive = seed_net.path.with_suffix(".npz")
    words = ["run", str(seed_net.path), "--input", str(tmp_path / "a.npy"), "--input", f"{archive}:forward.in1"]
    assert main([*words, "--compare", str(archive), "--out", str(tmp_path / "out")]) == 0
    assert "(ok 1e-05)" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(tmp_path / "out" / "out0.npy"), seed_net.outputs()[0], atol=1e-5)
    np.savez(tmp_path / "want.npz", out0=seed_net.outputs()[0] + 1)
    assert main([*words, "--compare", str(tmp_path / "want.npz"), "--tol", "0.1"]) == 4
    assert "(over 0.1)" in capsys.readouterr().out
    np.savez(tmp_path / "shape.npz", out0=np.zeros(3))
    assert main([*words, "--compare", str(tmp_path / "shape.npz")]) == 4


def test_run_without_inputs_takes_zeros_and_frozen_scalars(case: Any, capsys: Any) -> None:
    assert main(["run", str(case("h04"))]) == 0
    assert capsys.readouterr().out.count("float32 (3,)") == 2
    assert main(["run", str(case("h03")), "--method", "name"]) == 0
    assert capsys.readouterr().out == "out0  str 'abc'\n"


def test_run_takes_scalars_remaps_and_limits(case: Any, capsys: Any) -> None:
    words = ["run", str(case("h04")), "--input", "ones:3", "--input", "int:3", "--input", "float:0.5"]
    assert main([*words, "--input", "bool:true"]) == 0
    assert main([*words, "--input", "bool:false"]) == 1
    assert "InputError" in capsys.readouterr().err
    assert main(["run", str(case("h16")), "--arena", "cuda:0=host"]) == 0
    assert main(["run", str(case("h16")), "--arena", "cuda:0=host", "--limit", "host=1KiB"]) == 1
    assert "ArenaMemoryError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--input", "int:x"],
        ["--input", "ones:4xy"],
        ["--input", "ones:4:float99"],
        ["--arena", "cuda:0"],
        ["--limit", "host=much"],
        ["--limit", "moon=1KiB"],
    ],
)
def test_run_explains_words_it_does_not_understand(seed_net: Any, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(seed_net.path), *words])
    assert str(caught.value).startswith("arenite: ")


def test_spaces_are_listed(capsys: Any) -> None:
    assert main(["spaces"]) == 0
    assert capsys.readouterr().out.startswith("host")
    assert main(["spaces", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["host"]["available"] is True


def test_a_missing_file_is_one_line(capsys: Any) -> None:
    assert main(["inspect", "no_such.pte"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and "no_such.pte" in captured.err


@pytest.mark.parametrize("form", [["-m", "arenite"], ["-c", "import sys; from arenite.__main__ import main; sys.exit(main())"]])
def test_it_runs_as_a_module_and_as_a_script(seed_net: Any, form: list[str]) -> None:
    arguments = [sys.executable, "-W", "error", *form, "inspect", str(seed_net.path)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "✓ aten::add.out" in run.stdout


def test_importing_the_package_is_light() -> None:
    code = "import sys, arenite; print([name for name in ('argparse', 'json', 'torch', 'ml_dtypes') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_bench_times_runs_and_says_what_is_copied(seed_net_dyn: Any, capsys: Any) -> None:
    words = ["bench", str(seed_net_dyn.path), "--shape", "0=2x16", "--shape", "1=2x16", "--repeat", "20"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["runs"] == 20 and facts["method"] == "forward"
    assert 0 < facts["p10_us"] <= facts["median_us"] <= facts["p90_us"]
    assert facts["copied_bytes"] == {"in": 2 * 2 * 16 * 4, "out": 2 * 16 * 4}
    assert facts["planned_bytes"]["host"] > 0
    assert main(["bench", str(seed_net_dyn.path), "--seconds", "0.01"]) == 0
    assert "median" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="N=AxB"):
        main([*words, "--shape", "7=2"])


def test_plan_draws_the_file_s_plan_and_a_tighter_one(case: Any, tmp_path: pathlib.Path, capsys: Any) -> None:
    out = tmp_path / "plan.svg"
    assert main(["plan", str(case("h15")), "-o", str(out), "--text"]) == 0
    text = capsys.readouterr().out
    assert "arena 1: 640 bytes in host; at most" in text and "#" in text
    svg = out.read_text()
    assert svg.startswith("<svg") and "float32" in svg and "arena 2: 2048 bytes in host" in svg
    assert main(["plan", str(case("h15")), "--replan", "best"]) == 0
    lines = capsys.readouterr().out.splitlines()
    arenas = [line for line in lines if "; at most" in line]
    assert len(arenas) == 1 and arenas[0].endswith(", 100 % of it"), "one plan for the space, at its bound"
    assert main(["plan", str(case("h11"))]) == 1
    assert "PlanError" in capsys.readouterr().err


def test_a_plan_is_drawn_by_role(seed_net: Any) -> None:
    drawing = arenite.Runtime.get().load_program(seed_net.path).draw_plan("forward")
    assert drawing._repr_html_() == drawing.to_svg()
    assert [size for _, size, _ in drawing.arenas] == [768]
    for role in ("input", "output"):
        assert role in drawing.to_svg()

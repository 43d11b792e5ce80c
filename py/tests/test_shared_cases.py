"""Trial cases that lie beside the repository on some machines: replayed where they are there."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from facts import within

CASES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "cases"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the trial cases are not beside the repository")
NAMES = sorted(path.name for path in CASES.glob("h*.json")) if CASES.is_dir() else []


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_is_right_and_silent(name: str) -> None:
    arguments = [sys.executable, str(CASES / "replay.py"), "arenite", str(CASES / name)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True)
    lines = run.stdout.strip().splitlines()
    assert len(lines) == 1 and lines[0].endswith("[0 stderr lines]"), run.stdout
    said = lines[0].removesuffix("[0 stderr lines]").split(maxsplit=1)[1].strip()
    assert said.startswith("no steps") or said.split(" ", 1)[1] == "ok", run.stdout


@pytest.mark.parametrize("name", NAMES)
def test_inspect_carries_every_fact_of_a_case(name: str) -> None:
    numpy_names = {
        "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64",
        "half": "float16", "float": "float32", "double": "float64",
    }  # fmt: skip

    def as_numpy(facts: object) -> object:
        if isinstance(facts, dict):
            return {
                key: numpy_names.get(value, value) if key == "dtype" else as_numpy(value)
                for key, value in facts.items()
            }
        return [as_numpy(item) for item in facts] if isinstance(facts, list) else facts

    for file, wanted in json.loads((CASES / name).read_text())["inspect"].items():
        arguments = [sys.executable, "-m", "arenite", "inspect", str(CASES / file), "--json"]
        run = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert run.returncode in (0, 3) and run.stderr == ""
        within(as_numpy(wanted), json.loads(run.stdout), file)


@pytest.mark.parametrize("name", ["seq_h17.py", "seq_h19.py", "seq_h20.py"])
@pytest.mark.filterwarnings("default")
def test_a_sequence_passes(name: str) -> None:
    run = subprocess.run([sys.executable, str(CASES / name), "arenite"], capture_output=True, text=True, check=True)
    lines = [line for line in run.stdout.splitlines() if line]
    assert lines and all(line.startswith("PASS") for line in lines), run.stdout

"""The type stubs say what the built module has."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

import arenite


def test_the_package_exports_the_module(tmp_path: pathlib.Path) -> None:
    from arenite import _arenite

    public = {name for name in vars(_arenite) if not name.startswith("_")}
    assert public | {"__version__"} == set(arenite.__all__)
    assert arenite.__all__ == sorted(arenite.__all__)
    for name in public:
        assert getattr(_arenite, name).__doc__, f"{name} is documented"


def test_stubs_match_the_built_module(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    arguments = [sys.executable, "-m", "mypy.stubtest", "arenite", "--concise"]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_package_type_checks(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    arguments = [sys.executable, "-m", "mypy", "--strict", "-p", "arenite"]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr

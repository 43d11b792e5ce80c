"""Programs and values that the tests run on, all from tests/data of the repository."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"


class Sample:
    """A program and the values that eager PyTorch gave for it."""

    def __init__(self, name: str) -> None:
        self.path = DATA / f"{name}.pte"
        with np.load(DATA / f"{name}.npz") as archive:
            self.arrays: dict[str, Any] = dict(archive)

    def inputs(self, method: str = "forward") -> list[Any]:
        return self._of(f"{method}.in")

    def outputs(self, method: str = "forward") -> list[Any]:
        return self._of(f"{method}.out")

    def _of(self, prefix: str) -> list[Any]:
        count = sum(key.startswith(prefix) for key in self.arrays)
        return [self.arrays[f"{prefix}{index}"].copy() for index in range(count)]


@pytest.fixture
def seed_net() -> Sample:
    return Sample("seed_net")


@pytest.fixture
def seed_net_dyn() -> Sample:
    return Sample("seed_net_dyn")


@pytest.fixture
def case() -> Any:
    """The path of a small program by the start of its name."""

    def find(start: str) -> pathlib.Path:
        paths = sorted((DATA / "cases").glob(f"{start}*.pte"), key=lambda path: len(path.name))
        assert paths, f"tests/data/cases has {start}"
        return paths[0]

    return find

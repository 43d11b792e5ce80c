"""Comparing facts: what is wanted must be there, and more may be."""

from __future__ import annotations

from typing import Any


def within(wanted: Any, got: Any, place: str = "") -> None:
    """Asserts that `got` has every fact of `wanted`."""
    if isinstance(wanted, dict):
        assert isinstance(got, dict), place
        for key, value in wanted.items():
            assert key in got, f"{place}.{key}"
            within(value, got[key], f"{place}.{key}")
    elif isinstance(wanted, list):
        assert isinstance(got, list) and len(got) == len(wanted), place
        for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
            within(one, other, f"{place}[{index}]")
    else:
        assert got == wanted and type(got) is type(wanted), f"{place}: {got!r}, wanted {wanted!r}"

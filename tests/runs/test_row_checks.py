"""Rows whose inner values have other types are not valid, unless a checksum vouches for them."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.runs.row_checks import row_is_valid

STEP: dict[str, Any] = {
    "step": 3, "metrics": {"loss": 0.1}, "slices": {"all": {"n_tokens": 5, "n_trajectories": 2}}, "columns": ["x"], "time": 1.5, "failed": False,
    "not_observed": {"kl": "no column"}, "nonfinite": {"loss": 1}, "costs_s": {"flush": 0.1},
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"loss": "x"}}, {"metrics": {"loss": True}}, {"not_observed": {"kl": 1}}, {"nonfinite": {"loss": 1.5}},
        {"costs_s": {"flush": None}}, {"slices": {"all": 3}}, {"slices": {"all": {"n_tokens": 5}}}, {"columns": [1]},
    ],
)  # fmt: skip
def test_an_inner_value_of_another_type_is_not_valid(change: dict[str, Any]) -> None:
    assert row_is_valid(STEP, "steps", True, False)
    assert not row_is_valid(STEP | change, "steps", True, False)
    assert row_is_valid(STEP | change, "steps", True, True)

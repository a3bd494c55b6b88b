"""Which groups a fraction lets through, and which episodes may be trained on."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.errors import ToolError
from trimtab.tools.admission import ToolAdmission


def test_episodes_leave_for_what_the_lever_says() -> None:
    admission = ToolAdmission()
    group, called, broken = np.array([0, 0, 0, 1]), [["a"], ["a", "b"], ["b"], []], [["a"], [], ["b"], []]
    assert admission.trained(3, group, called, broken).all()
    admission.set("tool_broken_gradient", "tool/a", 0.0)
    assert admission.trained(3, group, called, broken).tolist() == [False, True, True, True]
    admission.set("tool_gradient", "tool/b", 0.0)
    assert admission.trained(3, group, called, broken).tolist() == [False, False, False, True]
    assert admission.offered(3, 0, ["a", "b"]) == ["a", "b"]  # masked is not withheld
    admission.set("tool_offer", "tool/b", 0.0)
    assert admission.offered(3, 0, ["a", "b"]) == ["a"]


def test_a_fraction_takes_in_whole_groups_the_same_ones_everywhere() -> None:
    one, other = ToolAdmission(), ToolAdmission()
    for admission in (one, other):
        admission.set("tool_gradient", "tool/a", 0.25)
    draws = [[one.admits("tool_gradient", "a", step, group) for group in range(64)] for step in range(40)]
    assert draws == [
        [other.admits("tool_gradient", "a", step, group) for group in range(64)] for step in range(40)
    ]
    count = sum(map(sum, draws))  # binomial: 640 of 2,560, standard deviation 22
    assert 550 < count < 730
    assert len({tuple(row) for row in draws}) == 40  # other groups at each step
    valid = one.trained(0, np.repeat(np.arange(64), 2), [["a"]] * 128, [[]] * 128)
    assert valid.reshape(64, 2).tolist() == [[value, value] for value in draws[0]]


def test_what_is_no_tool_or_no_fraction_is_refused() -> None:
    admission = ToolAdmission()
    with pytest.raises(ToolError, match="'all' is not a tool's slice; give tool/<name>"):
        admission.set("tool_offer", "all", 0.0)
    with pytest.raises(ToolError, match="fraction of groups in"):
        admission.set("tool_offer", "tool/a", 2.0)
    with pytest.raises(ToolError, match=r"must be \(B,\)"):
        admission.trained(0, np.zeros(2), [["a"]], [[]])

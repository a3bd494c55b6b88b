"""Student's t against scipy, in the middle and where one less the closed form is rounding."""

from __future__ import annotations

import pytest
from scipy import stats as scipy_stats

from trimtab.stats.student_t import t_quantile, t_tail


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 9, 30, 101])
def test_tail_and_quantile_against_scipy(dof: int) -> None:
    for level in (0.4, 0.05, 1e-3, 1e-6, 1e-9, 1e-11, *((1e-15, 1e-18) if dof > 1 else ())):
        t = float(scipy_stats.t.isf(level, dof))
        assert t_tail(t, dof) == pytest.approx(level, rel=1e-6)
        assert t_quantile(level, dof) == pytest.approx(t, rel=1e-6)


@pytest.mark.parametrize(("level", "dof"), [(0.0, 3), (0.5, 3), (0.01, 0)])
def test_levels_and_degrees_out_of_range_are_refused(level: float, dof: int) -> None:
    with pytest.raises(ValueError, match=f"got {level} and {dof}"):
        t_quantile(level, dof)

"""What the sketch states about its error holds for values on a grid too, for 1 to 400,000 of them."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.stats import LogSketch

SIZES = (1, 2, 7, 100, 5_000, 400_000)


def gridded(grid, n, seed):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=n) * 10.0 ** rng.uniform(-3, 0.5)).astype(np.float32)
    if grid == "1/256":
        return np.round(x * 256) / np.float32(256)
    if grid == "bf16":
        return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return x


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("grid", ["none", "1/256", "bf16"])
def test_the_share_lies_within_its_bounds_and_the_sums_within_theirs(grid, n):
    """Issue 17.21: the bracket is exact, the interpolated share is inside it, and mean and moments keep 1e-6."""
    for seed in range(4):
        x = gridded(grid, n, seed)
        sketch = LogSketch()
        sketch.update(x)
        size = np.abs(x.astype(np.float64))
        taus = [
            0.0,
            0.01,
            0.05,
            1 / 256,
            0.1,
            0.3,
            1.0,
            *np.quantile(size, [0.1, 0.5, 0.9, 0.99]),
            size.max(),
        ]
        for tau in map(float, taus):
            low, high = sketch.abs_exceedance_bounds(tau)
            assert low <= (size > tau).mean() <= high, (seed, tau)
            assert low - 1e-12 <= sketch.abs_exceedance(tau) <= high + 1e-12
            if tau > 0.0:
                inside = (size > tau / 1.033) & (size < tau * 1.033)
                assert high - low <= inside.mean() + 1e-12 or tau < 2.0**-24
        wide = x.astype(np.float64)
        assert sketch.mean() == pytest.approx(wide.mean(), abs=1e-6 * size.mean())
        assert sketch.variance() == pytest.approx(wide.var(), abs=2e-6 * (wide**2).mean())
        for power in (1, 2, -1):
            top = (power * wide).max()
            want = top + np.log(np.exp(power * wide - top).mean())
            assert sketch.log_mean_exp(power) == pytest.approx(want, abs=2e-6)

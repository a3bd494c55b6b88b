"""Readings of the shape of a distribution, and of its change: tail indices, chi-square, shifts between windows, policy lag, clipping."""

from __future__ import annotations

from trimtab.catalog.definitions import UNCALIBRATED, Definition, Direction

LAG_BUCKETS = {"lag_0": "0", "lag_1": "1", "lag_2_3": "2 or 3", "lag_4_up": "4 or more"}
"""Buckets of the age of a token in policy versions."""

_RATIOS = ("mismatch", "staleness", "total", "drift")
_HILL = "Hill 1975; median over 8 m from M/4 to M = min(0.2 n, 3 sqrt n)"
_GPD = "Zhang & Stephens 2009; the fit of arXiv 1507.02646, appendix G"
_MAIN = "; in all, text and post_tool"
_KS = "Smirnov 1948; design effect of Kish 1965"


def _tail_indices() -> dict[str, Definition]:
    rows: dict[str, Definition] = {}
    for name in _RATIOS:
        rows[f"{name}/hill"] = Definition(
            f"Hill's tail index of |log-ratio| of {name}: from 0.5 on no variance, from 1 on no mean{_MAIN}",
            "1",
            "up is bad",
            _HILL,
        )
        rows[f"{name}/gpd_shape"] = Definition(
            f"generalised-Pareto shape of |log-ratio| of {name}; 0 is an exponential tail{_MAIN}",
            "1",
            "up is bad",
            _GPD,
        )
    for name in ("mismatch", "total"):
        rows[f"{name}/hill_w"] = Definition(
            f"Hill's tail index of w of {name}{_MAIN}", "1", "up is bad", _HILL
        )
        rows[f"{name}/hill_inverse"] = Definition(
            f"Hill's tail index of 1/w of {name}{_MAIN}", "1", "up is bad", _HILL
        )
        rows[f"{name}/chi2"] = Definition(
            f"E_mu[w^2] - 1 of raw token weights, the plug-in for E_mu[w] = 1; may be negative; interval{_MAIN[1:]}", "1", "up is bad",
            "arXiv 2510.01161 (M2PO)",
        )  # fmt: skip
    return rows


_SHIFTS: dict[str, tuple[str, str, Direction, str]] = {
    "shift_ks": ("largest difference of the two CDFs of |log-ratio|", "share", "up is bad", _KS),
    "shift_ks_level": ("the same over its 5 % critical value at the effective sizes; above 1 is significant", "ratio", "up is bad", _KS),
    "shift_w1": ("area between the two CDFs of |log-ratio| (Wasserstein-1)", "nats", "up is bad", "Vallender 1974"),
    "shift_tail_mass": ("change of the share of tokens beyond the earlier window's p95", "difference of shares", "up is bad", UNCALIBRATED),
    "shift_tail_mass_p99": ("change of the share of tokens beyond the earlier window's p99", "difference of shares", "up is bad", UNCALIBRATED),
}  # fmt: skip


def _shifts() -> dict[str, Definition]:
    rows: dict[str, Definition] = {}
    for name in _RATIOS:
        for suffix, against in (("", "previous"), ("_first", "first")):
            for key, (what, unit, direction, source) in _SHIFTS.items():
                text = f"{name}, against the {against} window of the slice: {what}{_MAIN}"
                rows[f"{name}/{key}{suffix}"] = Definition(text, unit, direction, source)
        rows[f"{name}/stretch"] = Definition(
            f"p99/p50 of |log-ratio| of {name} over the same of the slice's first window{_MAIN}",
            "ratio",
            "up is bad",
            UNCALIBRATED,
        )
        rows[f"{name}/n_eff"] = Definition(
            f"tokens of {name} over the design effect of its trajectories on the CDF of |log-ratio|{_MAIN}", "count", "neither",
            "Kish 1965",
        )  # fmt: skip
    return rows


def _lags() -> dict[str, Definition]:
    rows = {
        "policy_lag/mean": Definition("mean age of the gradient tokens in policy versions", "versions", "up is bad", "AReaL, arXiv 2505.24298"),
        "policy_lag/max": Definition("greatest age of a gradient token in policy versions", "versions", "up is bad", "AReaL, arXiv 2505.24298"),
    }  # fmt: skip
    for name in ("staleness", "total"):
        for bucket, versions in LAG_BUCKETS.items():
            rows[f"{name}/{bucket}_p95"] = Definition(
                f"95th percentile of |log-ratio| of {name} of tokens {versions} policy versions old",
                "nats",
                "up is bad",
                UNCALIBRATED,
            )
    return rows


SHAPE: dict[str, Definition] = {
    **_tail_indices(),
    **_shifts(),
    **_lags(),
    "staleness/clip_active_high_frac": Definition(
        "share of tokens whose gradient the clip removes above: A > 0 and pi_theta/pi_old > 1 + the trainer's epsilon", "share",
        "up is bad", "PPO, arXiv 1707.06347, eq. 7",
    ),
    "staleness/clip_active_low_frac": Definition(
        "share of tokens whose gradient the clip removes below: A < 0 and pi_theta/pi_old < 1 - the trainer's epsilon", "share",
        "up is bad", "PPO, arXiv 1707.06347, eq. 7",
    ),
}  # fmt: skip

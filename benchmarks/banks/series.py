"""The series of a generated run: level, how far learning moves it, scatter, and the scale on which both act.

`sd` is the marginal standard deviation of the noise on that scale, the unit of a pathology's strength. `learning` is
what a whole learning curve adds. `season` is the loading of a curriculum in units of `sd`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SERIES", "Key", "Series"]

Key = tuple[str, str]  # reading key, slice


@dataclass(frozen=True)
class Series:
    """One series. `every` > 1: logged only each so many steps, as evaluations are."""

    level: float
    learning: float
    sd: float
    scale: Literal["identity", "log"] = "identity"
    season: float = 0.0
    low: float = float("-inf")
    high: float = float("inf")
    every: int = 1


def _all(**rows: Series) -> dict[Key, Series]:
    return {(f"aggregate/{name}", "all"): row for name, row in rows.items()}


SERIES: dict[Key, Series] = {
    **_all(
        reward=Series(0.30, 0.45, 0.040, season=1.0, low=0.0, high=1.0),
        reward_std=Series(0.35, -0.10, 0.020, low=0.0),
        zero_std_frac=Series(0.10, 0.20, 0.040, low=0.0, high=1.0),
        held_out_reward=Series(0.28, 0.42, 0.025, low=0.0, high=1.0, every=10),
        reward_length_corr=Series(0.05, 0.0, 0.08, low=-1.0, high=1.0),
        correct_logp=Series(-0.35, 0.10, 0.020, season=0.5),
        kl=Series(0.004, 2.5, 0.15, "log", season=0.3),
        policy_kl=Series(3e-4, 0.0, 0.30, "log"),
        mismatch_kl=Series(8e-4, 0.2, 0.20, "log"),
        mismatch_abs=Series(0.012, 0.2, 0.10, "log"),
        entropy=Series(0.90, -0.35, 0.030, season=0.5, low=0.0),
        template_mi=Series(0.85, 0.05, 0.030, low=0.0, high=1.0),
        clip_high_frac=Series(0.010, 0.1, 0.30, "log"),
        clip_low_frac=Series(0.004, 0.1, 0.30, "log"),
        staleness_lag=Series(1.0, 0.0, 0.10, low=0.0),
        grad_norm=Series(0.40, -0.4, 0.25, "log", season=0.3),
        loss=Series(0.0, 0.0, 0.020),
        advantage_std=Series(0.90, -0.05, 0.030, low=0.0),
        length=Series(350.0, 80.0, 15.0, season=1.0, low=1.0),
        truncated_frac=Series(0.030, 0.0, 0.25, "log", season=0.5),
        repetition_frac=Series(0.040, 0.0, 0.15, "log"),
        tool_calls=Series(2.0, 0.5, 0.10, season=0.5, low=0.0),
        no_call_frac=Series(0.08, -0.3, 0.20, "log", season=0.3),
        tool_failure_frac=Series(0.05, -0.2, 0.25, "log", season=0.3),
        tool_latency_s=Series(1.2, 0.0, 0.15, "log"),
        value_loss=Series(0.20, -0.5, 0.15, "log"),
        value_explained_variance=Series(0.55, 0.15, 0.050, high=1.0),
        held_out_loss=Series(1.40, -0.20, 0.010, every=10),
        margin=Series(0.60, 0.50, 0.060),
        chosen_logp=Series(-0.90, 0.10, 0.030),
        step_s=Series(30.0, 0.1, 0.06, "log", season=0.5),
        tokens_per_s=Series(2400.0, 0.0, 0.05, "log", season=0.3),
    ),
    ("tail_ratio/p95", "post_tool"): Series(1.8, 0.2, 0.12, "log"),
    ("drift/p95", "all"): Series(0.05, 1.5, 0.10, "log"),
    ("lagged_drift/p95", "post_tool"): Series(0.04, 0.0, 0.20, "log"),
    ("mismatch/p99", "all"): Series(0.10, 0.1, 0.12, "log"),
    ("mismatch/token_ess_frac", "all"): Series(0.985, 0.0, 0.003, high=1.0),
    ("mismatch/khat", "all"): Series(0.25, 0.0, 0.05),
    ("ref_logprob/below_5_frac", "post_tool"): Series(0.020, 0.2, 0.15, "log"),
    ("weight_mass/top_trajectory_frac", "all"): Series(0.05, 0.0, 0.20, "log", high=1.0),
}  # fmt: skip

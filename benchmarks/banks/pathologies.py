"""What goes wrong, and which series show it: (key, slice) -> +1 up or -1 down, in units of the series' own scatter.

`family` is the diagnosis a person would want. Sources: docs of the cases in facts (`diagnostics.md` section 3), TRL and
verl issues, rldoctor's and rlprobe's scenario lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.banks.series import Key

__all__ = ["PATHOLOGIES", "Pathology"]


@dataclass(frozen=True)
class Pathology:
    """`learning` False: the run has stopped learning at the onset (its curves stand still from there on)."""

    family: str
    moves: dict[Key, float] = field(default_factory=dict)
    learning: bool = True


def _p(family: str, learning: bool = True, tail: dict[Key, float] | None = None, **moves: float) -> Pathology:
    return Pathology(
        family, {(f"aggregate/{name}", "all"): sign for name, sign in moves.items()} | (tail or {}), learning
    )


_TAIL: Key = ("tail_ratio/p95", "post_tool")
_LAGGED: Key = ("lagged_drift/p95", "post_tool")
_SUPPORT: Key = ("ref_logprob/below_5_frac", "post_tool")
_ESS: Key = ("mismatch/token_ess_frac", "all")
_KHAT: Key = ("mismatch/khat", "all")
_MISMATCH: Key = ("mismatch/p99", "all")
_TOP: Key = ("weight_mass/top_trajectory_frac", "all")
_DRIFT: Key = ("drift/p95", "all")

PATHOLOGIES: dict[str, Pathology] = {
    "post_tool_tail": _p("post_tool", tail={_TAIL: 1, _LAGGED: 1}),
    "hidden_instability": _p("post_tool", tail={_TAIL: 1, _SUPPORT: 1, _LAGGED: 1}),
    "tail_then_collapse": _p("post_tool", False, {_TAIL: 1, _LAGGED: 1, _DRIFT: 1}, reward=-1, grad_norm=1),
    "support_loss": _p("support", tail={_SUPPORT: 1, _TAIL: 1}),
    "kl_blowup": _p("kl", False, {_DRIFT: 1}, kl=1, policy_kl=1),
    "entropy_collapse": _p("entropy", False, entropy=-1, reward_std=-1, zero_std_frac=1),
    "entropy_explosion": _p("entropy", False, entropy=1, repetition_frac=1),
    "template_collapse": _p("template", False, template_mi=-1, reward_std=-1),
    "reward_collapse": _p("reward", False, reward=-1, held_out_reward=-1, grad_norm=1),
    "reward_hacking": _p("hacking", False, reward=1, held_out_reward=-1, reward_length_corr=1),
    "length_hacking": _p("length", False, length=1, reward_length_corr=1, truncated_frac=1),
    "length_collapse": _p("length", False, length=-1, tool_calls=-1),
    "truncation": _p("truncation", truncated_frac=1, length=1),
    "repetition": _p("repetition", False, repetition_frac=1, entropy=-1),
    "group_collapse": _p("groups", False, zero_std_frac=1, reward_std=-1, advantage_std=-1),
    "clip_high": _p("clip", clip_high_frac=1, policy_kl=1),
    "clip_low": _p("clip", clip_low_frac=1, policy_kl=1),
    "gradient_explosion": _p("gradient", False, {_TOP: 1}, grad_norm=1),
    "gradient_vanishing": _p("gradient", False, grad_norm=-1, advantage_std=-1),
    "concentration": _p("concentration", tail={_TOP: 1}, grad_norm=1),
    "mismatch_growth": _p("mismatch", tail={_MISMATCH: 1, _ESS: -1}, mismatch_kl=1, mismatch_abs=1),
    "heavy_mismatch": _p("mismatch", tail={_KHAT: 1, _ESS: -1}, mismatch_kl=1),
    "staleness": _p("staleness", staleness_lag=1, policy_kl=1),
    "tool_failures": _p("tools", False, tool_failure_frac=1, reward=-1),
    "tool_latency": _p("tools", tool_latency_s=1, step_s=1),
    "tool_use_dies": _p("tools", tool_calls=-1, no_call_frac=1),
    "likelihood_displacement": _p("likelihood", False, correct_logp=-1, reward=-1),
    "value_divergence": _p("value", value_loss=1, value_explained_variance=-1),
    "margin_collapse": _p("preference", False, margin=-1, chosen_logp=-1),
    "overfit": _p("gap", False, held_out_loss=1, held_out_reward=-1, chosen_logp=-1),
    "throughput_rot": _p("throughput", tokens_per_s=-1, step_s=1),
}  # fmt: skip
STRENGTHS = {"low": 0.75, "medium": 1.5, "high": 3.0}
"""Size of the movement in baseline standard deviations."""

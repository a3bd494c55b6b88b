"""Which of our numbers does a peer understand, and under which name? Imported by both Pythons, so it imports nothing.

A series is a list of one entry a step: a float, `None` where the trainer logged nothing, NaN or infinity where it logged just
that. The last two differ: `None` leaves the key out, NaN is handed on, since a peer may watch for it.

`TO_PEER` is the table. Notes where a meaning bends:

* `reward_std` is ours within a group. rlprobe has both spreads, its detector reads the batch's, and its TRL adapter fills that one
  from TRL's `reward_std`: it gets ours under both names. rldoctor and rlwatch have one name for either.
* `kl` is to the reference. `policy_kl` and `mismatch_kl` are other quantities: no peer has a name for them, none is given them.
* rlprobe reads non-finite gradients from `nan_count` and `inf_count`: filled from `grad_norm` and `loss` where either is such.
* rlwatch also takes raw rewards; a log has none, so its test for two modes of reward cannot run. It stores further keywords
  without looking at them, hence they are not sent.
* Parts of the reward are `reward_part:<name>` among ours. KL by position has no name among ours, so rlprobe's
  REF_POLICY_DRIFT_ASYMMETRY never runs here; nor does the part of REWARD_HACK_LENGTH that reads samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "FROM_PEER",
    "PARTS",
    "PEERS",
    "TO_PEER",
    "rldoctor_rows",
    "rlprobe_steps",
    "rlwatch_calls",
    "to_ours",
    "untaken",
]

Series = Mapping[str, Sequence["float | None"]]

PEERS = ("rldoctor", "rlprobe", "rlwatch")

# ours: (rldoctor, by TRL's names where TRL has one; rlprobe's StepRecord; rlwatch's log_step). None: the peer cannot take it.
_NAMES: dict[str, tuple[str | None, str | None, str | None]] = {
    "reward": ("reward", "reward_mean", "reward_mean"),
    "reward_std": ("reward_std", "group_reward_std_mean", "reward_std"),
    "reward_max": ("reward_max", "reward_max", None),
    "reward_min": ("reward_min", "reward_min", None),
    "zero_std_frac": ("frac_reward_zero_std", "zero_variance_group_frac", None),
    "held_out_reward": ("eval/accuracy", None, None),
    "kl": ("kl", "kl_mean", "kl_divergence"),
    "kl_max": (None, "kl_max", None),
    "ratio_p95": (None, "ratio_p95", None),
    "entropy": ("entropy", "entropy_mean", "entropy"),
    "clip_frac": ("clip_ratio/region_mean", "clip_fraction", "clip_fraction"),
    "clip_high_frac": ("clip_ratio/high_mean", None, None),
    "clip_low_frac": ("clip_ratio/low_mean", None, None),
    "grad_norm": ("grad_norm", "grad_norm", "grad_norm"),
    "loss": ("loss", "loss", "loss"),
    "learning_rate": ("learning_rate", "lr", "learning_rate"),
    "advantage_mean": ("advantages_mean", "adv_mean", None),
    "advantage_std": ("advantages_std", "adv_std", "advantage_std"),
    "value_loss": (None, "value_loss", None),
    "value_explained_variance": ("critic/vf_explained_var", "value_explained_variance", None),
    "update_ratio": (None, "weight_update_ratio", None),
    "length": ("completions/mean_length", "completion_len_mean", None),
    "length_max": ("completions/max_length", "completion_len_max", None),
    "truncated_frac": ("completions/clipped_ratio", "truncation_rate", None),
    "repetition_frac": (None, "repetition_rate", None),
    "step_s": ("step_time", "step_time_s", None),
    "generation_s": (None, "generation_time_s", None),
    "tokens_per_s": ("perf/throughput", None, None),
}

TO_PEER: dict[str, dict[str, str]] = {
    peer: {ours: names[i] or "" for ours, names in _NAMES.items() if names[i]} for i, peer in enumerate(PEERS)
}
"""Peer -> our name -> the peer's. Whatever of ours is absent, the peer cannot take."""

FROM_PEER = {peer: {theirs: ours for ours, theirs in names.items()} for peer, names in TO_PEER.items()}
"""Peer -> the peer's name -> ours, for the peers' own scenarios."""


PARTS = {"rldoctor": ("rewards/", "/mean"), "rlprobe": ("reward_component.", "")}
"""Peer -> what stands before and after the name of a part of the reward; a part of ours is `reward_part:<name>`."""


def untaken(peer: str, series: Series) -> list[str]:
    """Our names in `series` that this peer has no name for."""
    return sorted(set(series) - set(TO_PEER[peer]))


def _rows(peer: str, steps: Sequence[int], series: Series) -> list[dict[str, Any]]:
    """One dict a step in the peer's names, keys without a reading left out. Raises ValueError where a length differs."""
    names = TO_PEER[peer]
    for name, values in series.items():
        if len(values) != len(steps):
            raise ValueError(f"series {name!r} has {len(values)} entries for {len(steps)} steps")
    taken = [(names[name], values) for name, values in series.items() if name in names]
    front, back = PARTS.get(peer, ("", ""))
    parts = {name.removeprefix("reward_part:"): values for name, values in series.items() if ":" in name}
    taken += [(f"{front}{name}{back}", values) for name, values in parts.items() if front]
    return [{theirs: float(v[i]) for theirs, v in taken if v[i] is not None} for i in range(len(steps))]  # type: ignore[arg-type]


def rldoctor_rows(steps: Sequence[int], series: Series) -> list[dict[str, Any]]:
    """The rows of `rl_doctor.run_from_records`."""
    return [
        {"step": int(step), **row} for step, row in zip(steps, _rows("rldoctor", steps, series), strict=True)
    ]


def rlprobe_steps(steps: Sequence[int], series: Series) -> list[dict[str, Any]]:
    """The keyword arguments of rlprobe's `StepRecord`, one a step; its `RunWriter` makes the recording of them.

    Non-finite numbers: rlprobe takes NaN for a missing value, so they also become its `nan_count` and `inf_count`.
    """
    found = []
    for step, row in zip(steps, _rows("rlprobe", steps, series), strict=True):
        if "group_reward_std_mean" in row:
            row["reward_std"] = row["group_reward_std_mean"]
        watched = [row[name] for name in ("grad_norm", "loss") if name in row]
        if watched:
            row["nan_count"] = sum(map(math.isnan, watched))
            row["inf_count"] = sum(map(math.isinf, watched))
        found.append({"step": int(step), **row})
    return found


def rlwatch_calls(steps: Sequence[int], series: Series) -> list[dict[str, Any]]:
    """The keyword arguments of rlwatch's `log_step`, one call a step."""
    return [
        {"step": int(step), **row} for step, row in zip(steps, _rows("rlwatch", steps, series), strict=True)
    ]


def to_ours(
    peer: str, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[int], dict[str, list[float | None]], list[str]]:
    """A peer's own rows as (steps, series in our names, the peer's keys that have no name among ours).

    Keys that hold nothing in any row are not listed.
    """
    names = FROM_PEER[peer]
    front, back = PARTS.get(peer, ("", ""))
    keys = {key for row in rows for key, value in row.items() if value is not None and key != "step"}
    series = {
        names[k]: [None if (v := row.get(k)) is None else float(v) for row in rows]
        for k in sorted(keys)
        if k in names
    }
    for key in sorted(keys - set(names)):
        if front and key.startswith(front) and key.endswith(back):
            part = key.removeprefix(front).removesuffix(back)
            series[f"reward_part:{part}"] = [
                None if (v := row.get(key)) is None else float(v) for row in rows
            ]
            keys.remove(key)
    return [int(row["step"]) for row in rows], series, sorted(keys - set(names))

"""What one optimizer step did to its tokens, over micro-batches and ranks, and how that is logged.

One reduce of sums and one gather of extremes a step; their lengths depend on the settings alone, so every
rank makes the same calls.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from trimtab.objectives import WeightSums, kl_terms, sequence_log_weights
from trimtab.objectives.routing_replay.recordings import Replayed
from trimtab.objectives.token_slices import Counts
from trimtab.training.minirl.losses import Columns
from trimtab.training.minirl.objective_defaults import SLICE_NAMES

_LABELS = ("all", *SLICE_NAMES)
_UNLOGGED = ("sum", "bad", "tokens", "known", "routing", "replayed", "aux")


class StepMetrics:
    """Counts, entropy, mismatch and row weights of one optimizer step on this rank, on the device until
    `reduce`.
    """

    def __init__(self) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self.maxima: dict[str, torch.Tensor] = {}
        self.weights = WeightSums(-math.inf, -math.inf, 0)

    def add(self, name: str, value: torch.Tensor) -> None:
        value = value.detach().double()
        self.sums[name] = self.sums[name] + value.to(self.sums[name]) if name in self.sums else value

    def raise_to(self, name: str, value: torch.Tensor) -> None:
        value = value.detach().double()
        self.maxima[name] = torch.maximum(self.maxima[name], value) if name in self.maxima else value

    def add_batch(
        self, c: Columns, value: torch.Tensor, entropy: torch.Tensor, counts: Counts, kl: torch.Tensor | None
    ) -> None:
        """One micro-batch: its tokens, what was clipped or dropped, entropy, KL, and what is not finite."""
        for mark, by_slice in counts.items():
            for label, number in by_slice.items():
                self.add(f"{mark}/{label}", number)
        for label, own in _members(c):
            self.add(f"tokens/{label}", own.sum())
        self.add("sum/entropy", torch.where(c.mask, entropy.detach(), 0.0).sum())
        if kl is not None:
            self.add("sum/kl", kl.sum())
        self.add("bad/loss", ~torch.isfinite(value))
        for name, logs in (("pi_theta", c.logprobs), ("mu", c.rollout)):
            if logs is not None:
                self.add(f"bad/{name}", (~torch.isfinite(logs) & c.mask).sum())
        tokens = c.mask.sum().clamp(min=1)
        if "clipped_low" in counts:
            self.raise_to("not_low", -counts["clipped_low"]["all"] / tokens)
        if "clipped_high" in counts:
            self.raise_to("high", counts["clipped_high"]["all"] / tokens)

    def add_aux(self, policy: torch.Tensor, aux: torch.Tensor, steps: int) -> None:
        """One of `steps` micro-batches: the loss without the router's, and the router's own, unweighted."""
        self.add("aux/policy_loss", policy)
        self.add("aux/aux_loss", aux / steps)
        self.add("aux/ranks", torch.ones_like(aux) / steps)

    def add_mismatch(self, c: Columns, drop_nonfinite: bool) -> None:
        """|log pi_old/mu| and its k3, an unbiased estimate of KL(mu || pi_old), by slice; dropped tokens stay
        out.
        """
        if c.rollout is None:
            return
        raw = (c.old - c.rollout).detach()
        known = c.mask & torch.isfinite(raw) if drop_nonfinite else c.mask
        size, k3 = raw.abs(), kl_terms(c.rollout, c.old.detach(), known)
        for label, own in _members(c):
            own = own & known
            self.add(f"known/{label}", own.sum())
            self.add(f"sum/abs_mean/{label}", torch.where(own, size, 0.0).sum())
            self.add(f"sum/k3_mean/{label}", torch.where(own, k3, 0.0).sum())
            self.raise_to(f"mismatch/{label}", torch.where(own, size, -1.0).amax())

    def add_replay(self, replayed: Replayed, required: torch.Tensor, before: torch.Tensor) -> None:
        """Required tokens; those without a recorded route, by layer; those whose live choice was another in
        the policy's own pass.

        `before`: `replayed.changed` when that pass began.
        """
        self.add("replayed/tokens", required.sum())
        self.add("replayed/layers", required.sum() * len(replayed.changed))
        if replayed.compare:  # else the choice is unknown, which is not zero
            self.add("routing/changed", (replayed.changed - before).sum())
        for layer, number in enumerate(replayed.counts["missing"]):
            self.add(f"routing/missing_layer_{layer}", number)

    def add_weights(self, logprobs: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor) -> None:
        """Row weights; a row without a loss token has none."""
        rows = mask.any(dim=1)
        self.weights = self.weights + WeightSums.of(sequence_log_weights(logprobs, rollout, mask)[rows])

    def reduce(self, accelerator: Any) -> dict[str, float]:
        """Sums over the ranks by name, and extremes over the ranks as `max/<name>`."""
        names, totals = sorted(self.sums), {}
        if names:
            own = torch.stack([self.sums[name].to(accelerator.device) for name in names])
            total = accelerator.reduce(own, reduction="sum")
            totals = dict(zip(names, total.tolist(), strict=True))
        names = sorted(self.maxima)
        if names:
            own = torch.stack([self.maxima[name].to(accelerator.device) for name in names])
            largest = accelerator.gather(own[None]).amax(dim=0)
            totals |= {f"max/{name}": value for name, value in zip(names, largest.tolist(), strict=True)}
        return totals

    @staticmethod
    def logs(totals: dict[str, float]) -> dict[str, float]:
        """What is logged of the sums: shares of the step's loss tokens, all and by slice, means a token,
        extremes.
        """
        logs: dict[str, float] = {}
        tokens = {label: totals.get(f"tokens/{label}", 0.0) for label in _LABELS}
        for key, value in totals.items():
            mark, _, label = key.rpartition("/")
            if key in ("sum/entropy", "sum/kl") and tokens["all"]:
                logs[label] = value / tokens["all"]
            elif mark == "routing" and totals["replayed/tokens"]:
                base = totals["replayed/layers" if label == "changed" else "replayed/tokens"]
                logs[f"routing/{label}_frac"] = value / base
            elif mark.partition("/")[0] not in (*_UNLOGGED, "max") and tokens[label]:
                logs[f"trimtab/{mark}_frac{_suffix(label)}"] = value / tokens[label]
        logs |= _aux_logs(totals) | _mismatch_logs(totals)
        return logs | (_clip_logs(totals, logs) if tokens["all"] else {})

    def all_weights(self, accelerator: Any) -> WeightSums:
        """Row weights of all ranks."""
        own = self.weights
        packed = torch.tensor(
            [[own.log_sum, own.log_square_sum, own.rows]], dtype=torch.float64, device=accelerator.device
        )
        total = WeightSums(-math.inf, -math.inf, 0)
        for one, two, rows in accelerator.gather(packed).tolist():
            total = total + WeightSums(one, two, int(rows))
        return total


def _members(c: Columns) -> list[tuple[str, torch.Tensor]]:
    slices = [(name, c.mask & (c.cells.index == number)) for number, name in enumerate(c.cells.names)]
    return [("all", c.mask), *slices]


def _suffix(label: str) -> str:
    return "" if label == "all" else f"/{label}"


def _aux_logs(totals: dict[str, float]) -> dict[str, float]:
    """Means over the ranks; TRL's name for the router's loss.

    `loss`, which transformers logs, is trimtab/policy_loss + trimtab/aux_coefficient x aux_loss.
    """
    ranks = totals.get("aux/ranks", 0.0)
    if not ranks:
        return {}
    return {
        "aux_loss": totals["aux/aux_loss"] / ranks,
        "trimtab/policy_loss": totals["aux/policy_loss"] / ranks,
    }


def _mismatch_logs(totals: dict[str, float]) -> dict[str, float]:
    logs: dict[str, float] = {}
    for label in _LABELS:
        known = totals.get(f"known/{label}", 0.0)
        if known:
            for name in ("abs_mean", "k3_mean"):
                logs[f"trimtab/mismatch/{name}{_suffix(label)}"] = totals[f"sum/{name}/{label}"] / known
            logs[f"trimtab/mismatch/abs_max{_suffix(label)}"] = totals[f"max/mismatch/{label}"]
    return logs


def _clip_logs(totals: dict[str, float], logs: dict[str, float]) -> dict[str, float]:
    """TRL's names; its minimum and maximum are over micro-batches and ranks."""
    if "trimtab/clipped_low_frac" not in logs:
        return {}
    low, high = logs["trimtab/clipped_low_frac"], logs.get("trimtab/clipped_high_frac", 0.0)
    return {
        "clip_ratio/low_mean": low,
        "clip_ratio/low_min": -totals["max/not_low"],
        "clip_ratio/high_mean": high,
        "clip_ratio/high_max": totals.get("max/high", 0.0),
        "clip_ratio/region_mean": low + high,
    }

"""The controls a claim about slices needs: gradient variance by slice, and post-tool tokens against matched text tokens.

Both are measured on the trainer's own batch, every few steps, and written to `controls.jsonl` in the run folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.func import functional_call

from reproduce.pilot.drift_aware import frozen_weights, post_tool
from trimtab.measure.policy.gradients import total_variance

__all__ = ["Controls", "gradient_variance", "matched_quantiles"]

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


def gradient_variance(
    rows: Iterable[tuple[torch.Tensor, torch.Tensor]], parameters: list[torch.Tensor]
) -> dict[str, float]:
    """Total variance of the per-trajectory gradient, of its text part and of its post-tool part.

    `rows`: for each trajectory the two scalars sum over text tokens and sum over post-tool tokens of A * log pi, with
    their graph. For a part g_i in R^d the total variance is sum_i |g_i - mean g|^2 / (n - 1). `all` is of their sum, so
    all = text + post_tool + 2 * covariance. All weights count.
    """
    running = _Running(parameters)
    for row in rows:
        running.add(row)
    return running.result()


def _flat(scalar: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    if not scalar.requires_grad:
        return torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    grads = torch.autograd.grad(scalar, parameters, retain_graph=True, allow_unused=True)
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).reshape(-1).double()
            for p, g in zip(parameters, grads, strict=True)
        ]
    )


def matched_quantiles(
    values: Float64,
    post: Bool,
    features: list[Float64],
    bins: tuple[int, ...],
    quantiles: tuple[float, ...] = (0.95, 0.99),
    least: int = 3,
) -> dict[str, float]:
    """Quantiles of post-tool values and of text values weighted to the same distribution of features.

    Each feature is cut at the quantiles of the post-tool tokens; a text token of a cell weighs (post tokens there) /
    (text tokens there). Cells with fewer than `least` text tokens are left out on both sides; `covered` is the share of
    post-tool tokens that stay.
    """
    cell = np.zeros(values.size, dtype=np.int64)
    for feature, count in zip(features, bins, strict=True):
        edges = (
            np.unique(np.quantile(feature[post], np.linspace(0, 1, count + 1)[1:-1])) if post.any() else []
        )
        cell = cell * count + np.searchsorted(edges, feature, side="right")
    size = int(cell.max(initial=0)) + 1
    of_post, of_text = np.bincount(cell[post], minlength=size), np.bincount(cell[~post], minlength=size)
    usable = (of_text >= least) & (of_post > 0)
    mine, theirs = post & usable[cell], ~post & usable[cell]
    out = {
        "n_post": float(mine.sum()),
        "n_text": float(theirs.sum()),
        "covered": float(mine.sum() / max(1, post.sum())),
    }
    weight = (of_post / np.maximum(of_text, 1))[cell[theirs]]
    for q in quantiles:
        name = f"p{round(100 * q):d}"
        out[f"post_{name}"] = _quantile(values[mine], np.ones(int(mine.sum())), q)
        out[f"text_{name}"] = _quantile(values[theirs], weight, q)
    return out


def _quantile(values: Float64, weights: Float64, q: float) -> float:
    """The smallest value at or below which a share q of the weight lies; nan when there is none."""
    if values.size == 0:
        return float("nan")
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = int(np.searchsorted(reached, q * reached[-1] * (1 - 1e-12)))
    return float(values[order][min(at, values.size - 1)])


class Controls:
    """Wraps a trainer's `_compute_loss`: every `every` steps, before the update, the controls of the batch are written."""

    def __init__(self, trainer: Any, path: Path, every: int) -> None:
        self.trainer, self.path, self.every = trainer, path, every
        self.start = frozen_weights(trainer)
        self.done = -1
        self._loss = trainer._compute_loss
        trainer._compute_loss = self._compute_loss

    def _compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        step = int(self.trainer.state.global_step)
        if step % self.every == 0 and step != self.done:
            self.done = step
            with self.path.open("a") as out:
                print(json.dumps({"step": step, **self.measure(inputs)}), file=out)
        return self._loss(model, inputs, *args, **kwargs)

    def measure(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Both controls of one batch (B trajectories)."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        own = inputs["completion_mask"].bool() & inputs["tool_mask"].bool()
        post = post_tool(inputs)
        advantages = inputs["advantages"]
        parameters = [p for p in model.parameters() if p.requires_grad]
        theta, ref, entropy = [], [], []

        def rows() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            for i in range(own.size(0)):
                logp, spread = _score(model, inputs, i, None)
                with torch.no_grad():
                    ref.append(_score(model, inputs, i, self.start)[0])
                theta.append(logp.detach())
                entropy.append(spread.detach())
                weighted = advantages[i].reshape(-1)[0] * logp
                yield (weighted * (own[i] & ~post[i])).sum(), (weighted * post[i]).sum()

        variance = gradient_variance(rows(), parameters)
        drift = (torch.stack(theta) - torch.stack(ref)).abs().double().numpy()
        own_np, post_np = own.numpy(), post.numpy()
        turn = _place_in_turn(own_np)
        place = np.broadcast_to(np.arange(own_np.shape[1]), own_np.shape)
        spread_np = torch.stack(entropy).double().numpy()
        table = (drift[own_np], post_np[own_np])
        by = {"turn": turn[own_np].astype(float), "position": place[own_np].astype(float)}
        return {
            "n_text": int((own_np & ~post_np).sum()),
            "n_post": int(post_np.sum()),
            "gradient_variance": variance,
            "matched_turn": matched_quantiles(*table, [by["turn"], spread_np[own_np]], (4, 5)),
            "matched_position": matched_quantiles(*table, [by["position"], spread_np[own_np]], (4, 5)),
        }


class _Running:
    """`gradient_variance` one trajectory at a time, so that one graph is alive at once."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.parameters = parameters
        size = sum(p.numel() for p in parameters)
        self.sums = torch.zeros(2, size, dtype=torch.float64)
        self.squares = np.zeros(3)
        self.n = 0

    def add(self, parts: tuple[torch.Tensor, torch.Tensor]) -> None:
        text, post = (_flat(part, self.parameters) for part in parts)
        self.sums[0] += text
        self.sums[1] += post
        both = text + post
        self.squares += np.array([float(g.dot(g)) for g in (text, post, both)])
        self.n += 1

    def result(self) -> dict[str, float]:
        n = self.n
        means = (self.sums[0], self.sums[1], self.sums.sum(dim=0))
        values = [
            total_variance(float(square), float(total.dot(total)), n)
            for square, total in zip(self.squares, means, strict=True)
        ]
        return dict(zip(("text", "post_tool", "all"), values, strict=True))


def _score(
    model: Any, inputs: dict[str, Any], row: int, weights: dict[str, torch.Tensor] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(T,) log-probabilities of a row's completion and the entropies of their distributions, in nats.

    Under the model's own weights, or under `weights`.
    """
    ids = torch.cat([inputs["prompt_ids"][row], inputs["completion_ids"][row]])[None]
    mask = torch.cat([inputs["prompt_mask"][row], inputs["completion_mask"][row]])[None]
    width = inputs["completion_ids"].size(1)
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    call = {"input_ids": ids, "attention_mask": mask, "position_ids": places}
    own = dict(model.named_parameters()) if weights is None else weights
    logits = functional_call(model, own, (), call, tie_weights=True).logits[0, -width - 1 : -1]
    table = torch.log_softmax(logits.float(), dim=-1)
    logp = table.gather(1, inputs["completion_ids"][row][:, None])[:, 0]
    return logp, -(table.exp() * table).sum(dim=1)


def _place_in_turn(own: Bool) -> npt.NDArray[np.int64]:
    """(B, T) tokens the policy has written since its turn began."""
    place = np.zeros(own.shape, dtype=np.int64)
    for at in range(1, own.shape[1]):
        place[:, at] = np.where(own[:, at] & own[:, at - 1], place[:, at - 1] + 1, 0)
    return place

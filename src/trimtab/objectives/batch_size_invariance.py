"""Settings that must change with the batch size so that learning per sample stays the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trimtab.errors import ObjectiveError


@dataclass(frozen=True)
class BatchRules:
    """Settings for the new batch."""

    learning_rate: float
    betas: tuple[float, float]
    centre_of_mass: float | None
    """Of the weight average, in optimizer steps; None without an average."""
    decay: float | None
    """The decay that belongs to `centre_of_mass`."""


def batch_size_rules(
    factor: float,
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    centre_of_mass: float | None = 8.0,
    optimizer: Literal["adam", "adamw", "sgd"] = "adam",
) -> BatchRules:
    """Return learning rate, Adam betas and EWMA centre of mass for a batch `factor` times as large.

    With c = 1/factor: over the same samples the new run takes c times as many steps.

    * SGD: c steps on independent batches add c times lr g; to move as far, lr' = lr/c.
    * Adam: a step is lr m/sqrt(v). With the batch divided by c the noise of the gradient grows by sqrt(c) and
      dominates sqrt(v) below the critical batch size, so a step already shrinks by sqrt(c) in its signal and
      c steps move sqrt(c) times too far: lr' = lr/sqrt(c). (The authors found it better than the linear
      rule.)
    * AdamW: as Adam. Its decay of the weights a step is lr' times the coefficient; c steps should decay as
      one did. So the coefficient becomes weight_decay/sqrt(c): arithmetic, not the paper's, and left to you.
    * betas: a memory of n steps should hold the same samples, so c steps must forget what one did: beta'^c =
      beta. Exact in time constant; the authors saw little effect.
    * average: centre of mass counts steps; the same age in samples is c times the steps: COM' = c COM and
      decay' = 1 - 1/(1 + c COM), which is not decay^(1/c) (that keeps the time constant, not the mean age).

    Holds for one epoch a batch, below the critical batch size, advantages normalised over the same samples.

    Args:
        factor: New batch size over the old one, above 0.
        learning_rate: Learning rate at the old batch size.
        betas: Adam's betas at the old batch size.
        centre_of_mass: Of the weight average, in optimizer steps; None without an average.
        optimizer: "adam", "adamw" or "sgd".

    Returns:
        The settings for the new batch.

    Raises:
        ObjectiveError: A factor or setting is out of range, or the optimizer is unknown.

    Example:
        >>> batch_size_rules(0.5, learning_rate=1e-3).decay  # half the batch: COM 16
        0.9411764705882353
        >>> round(batch_size_rules(1 / 16, learning_rate=1.0).learning_rate, 6)
        0.25

    Reference:
        Hilton et al. 2021, arXiv 2110.00641 section 4.
    """
    if not (0 < factor < math.inf and learning_rate > 0 and (centre_of_mass is None or centre_of_mass >= 0)):
        raise ObjectiveError(
            "need factor > 0, learning_rate > 0, centre_of_mass >= 0; "
            f"got {factor}, {learning_rate}, {centre_of_mass}"
        )
    if not all(0 <= beta < 1 for beta in betas):
        raise ObjectiveError(f"Adam betas lie in [0, 1), got {betas}")
    if optimizer not in ("adam", "adamw", "sgd"):
        raise ObjectiveError(f"rules are known for adam, adamw and sgd, not {optimizer!r}")
    scale = factor if optimizer == "sgd" else math.sqrt(factor)
    mass = None if centre_of_mass is None else centre_of_mass / factor
    return BatchRules(
        learning_rate=learning_rate * scale,
        betas=(betas[0] ** factor, betas[1] ** factor),
        centre_of_mass=mass,
        decay=None if mass is None else 1.0 - 1.0 / (1.0 + mass),
    )

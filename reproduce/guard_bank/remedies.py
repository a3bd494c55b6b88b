"""Published remedies against instability, each built into a loop from the fault on, with its authors' settings where the length of a run allows them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from trimtab.objectives.corrections import mis, tis
from trimtab.objectives.vcpo import WeightSums, learning_rate_scale, sequence_log_weights

__all__ = ["REMEDIES", "Remedy"]

CAP = 2.0
"""Cap of sequence weights: verl's default of `rollout_is_threshold`, and the cap of the runs by hand."""


class Remedy:
    """No remedy: every part of an update stays as it is. A remedy changes some of them."""

    def prepare(self, losses: list[float], norms: list[float]) -> None:
        """Take the series of losses and gradient norms before the fault."""

    def importance(self, ratio: Tensor, own: Tensor) -> Tensor | float:
        """Return weights of tokens (B, T) from log pi_theta/mu (B, T)."""
        return 1.0

    def rate_factor(self, step: int, logprobs: Tensor, sampled: Tensor, own: Tensor) -> float:
        """Return the factor on the learning rate of this step."""
        return 1.0

    def on_gradients(self, optimizer: Optimizer, step: int) -> None:
        """Change gradients or moments before the update."""

    def skips(self, loss: float, grad_norm: float) -> bool:
        """Return whether the update is left out."""
        return False


class LowRate(Remedy):
    """The learning rate times 0.3 from the fault on."""

    def rate_factor(self, step: int, logprobs: Tensor, sampled: Tensor, own: Tensor) -> float:
        """Return 0.3."""
        return 0.3


class SequenceTIS(Remedy):
    """Sequence weights pi_theta/mu, truncated at 2."""

    def importance(self, ratio: Tensor, own: Tensor) -> Tensor:
        """Return the truncated weight of each sequence at its tokens."""
        return tis(ratio, own, cap=CAP, level="sequence").weights


class SequenceMasking(Remedy):
    """Sequences whose weight pi_theta/mu is outside [1/2, 2] get no gradient (MIS)."""

    def importance(self, ratio: Tensor, own: Tensor) -> Tensor:
        """Return 1 at tokens of sequences that stay, and 0 elsewhere."""
        return mis(ratio, own, low=1 / CAP, high=CAP, level="sequence", weigh=False).weights


class EssRate(Remedy):
    """VCPO's step size: the learning rate times the root of the ESS fraction of sequence weights."""

    def rate_factor(self, step: int, logprobs: Tensor, sampled: Tensor, own: Tensor) -> float:
        """Return the factor of this batch; 0 where its weights are not finite."""
        ess = WeightSums.of(sequence_log_weights(logprobs, sampled, own)).ess_share
        return 0.0 if math.isnan(ess) else learning_rate_scale(min(ess, 1.0))


class StepSkipping(Remedy):
    """OLMo-core: an update is left out where loss or gradient norm lies over mean + 6 standard deviations of the last 128, after 64 values."""

    MEMORY, FIRST, SIGMAS = 128, 64, 6.0

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=self.MEMORY)
        self._norms: deque[float] = deque(maxlen=self.MEMORY)

    def prepare(self, losses: list[float], norms: list[float]) -> None:
        """Fill the memory with the steps before the fault."""
        self._losses.extend(losses)
        self._norms.extend(norms)

    def skips(self, loss: float, grad_norm: float) -> bool:
        """Return whether one of the two is an outlier; both join the memory either way, as the authors' do."""
        beyond = self._beyond(self._losses, loss) or self._beyond(self._norms, grad_norm)
        self._losses.append(loss)
        self._norms.append(grad_norm)
        return beyond

    def _beyond(self, memory: deque[float], value: float) -> bool:
        if len(memory) < self.FIRST:
            return False
        values = torch.tensor(list(memory), dtype=torch.float64)
        return not value <= float(values.mean() + self.SIGMAS * values.std())


class MomentumReset(Remedy):
    """SPAM: moments are reset every 50 steps, the rate warms up over 15 by a cosine, and gradients over sqrt(5000 v) are clipped to it.

    The authors reset every 500 steps and warm up over 150; both are shortened tenfold, as the runs are.
    """

    EVERY, WARM_UP, SPIKE = 50, 15, 5000.0

    def __init__(self) -> None:
        self._since: int | None = None

    def rate_factor(self, step: int, logprobs: Tensor, sampled: Tensor, own: Tensor) -> float:
        """Return the cosine warm-up after the last reset."""
        done = step - (step if self._since is None else self._since) + 1
        return 1.0 if done > self.WARM_UP else 0.5 * (1 - math.cos(math.pi * done / self.WARM_UP))

    def on_gradients(self, optimizer: Optimizer, step: int) -> None:
        """Reset the moments where it is time, else clip spikes."""
        if self._since is None or step - self._since >= self.EVERY:
            self._since = step
            optimizer.state.clear()
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                second = optimizer.state.get(parameter, {}).get("exp_avg_sq")
                if second is None or parameter.grad is None:
                    continue
                limit = (self.SPIKE * second).sqrt()
                spike = (parameter.grad.square() > self.SPIKE * second) & (second > 0)
                parameter.grad = torch.where(spike, parameter.grad.sign() * limit, parameter.grad)


REMEDIES: Mapping[str, Callable[[], Remedy]] = {
    "low_rate": LowRate,
    "ess_rate": EssRate,
    "sequence_tis": SequenceTIS,
    "sequence_masking": SequenceMasking,
    "step_skipping": StepSkipping,
    "momentum_reset": MomentumReset,
}
"""Arm -> the remedy it has from the fault on."""

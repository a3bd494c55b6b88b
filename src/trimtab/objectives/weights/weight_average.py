"""An exponentially weighted average of the weights: the proximal policy of PPO-EWMA (arXiv 2110.00641).

The mistake it prevents: an average that starts at zero, or at a decay tuned for another batch size. Bias is
corrected exactly: after n updates the average is sum_k decay^(n-k) p_k / sum_k decay^(n-k) over p_0 (the
weights at the start) to p_n.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.objectives.weights.weight_shards import exchanged, gathered, own_part, part_of


def trainable(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """Return names and parameters that require a gradient, shared ones once.

    Args:
        model: All parameters of a full fine-tune count, the adapters of a PEFT model.

    Returns:
        (name, parameter) pairs for `WeightAverage`.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> layer.bias.requires_grad = False
        >>> [name for name, _ in trainable(layer)]
        ['weight']
    """
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


class WeightAverage:
    """Exponentially weighted average of parameters.

    Call `update()` once after **every** optimizer step of the policy; read through `swapped()`.
    Half-precision parameters are averaged in float32, or small steps round away. Data parallel ranks hold
    equal weights, so each keeps its own equal average, without communication; of weights that FSDP2 shards
    each rank averages its part.

    Args:
        parameters: (name, parameter) pairs, see `trainable`.
        centre_of_mass: Mean age in updates of what the average holds, decay/(1 - decay), 0 or more.

    Raises:
        ObjectiveError: The list is empty, two parameters have one name, or `centre_of_mass` is negative.
        UnsupportedError: Parameters are sharded by FSDP1 or ZeRO-3, or on the meta device.

    Example:
        >>> p = torch.nn.Parameter(torch.tensor([0.0]))
        >>> average = WeightAverage([("p", p)], centre_of_mass=1.0)  # decay 1/2
        >>> p.data += 3.0
        >>> average.update()
        >>> average.average["p"]  # (1/2 * 0 + 3) / (1/2 + 1)
        tensor([2.])

    Reference:
        Hilton et al. 2021, arXiv 2110.00641 section 3 and appendix B.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, torch.nn.Parameter]], *, centre_of_mass: float = 8.0
    ) -> None:
        pairs = list(parameters)
        self.parameters = dict(pairs)
        if not pairs or len(self.parameters) != len(pairs):
            raise ObjectiveError("give at least one parameter, each with a name of its own")
        for name, parameter in pairs:
            _refuse(name, parameter)
        self.centre_of_mass = centre_of_mass
        self._swapped = False
        self.reset()

    @property
    def decay(self) -> float:
        """1 - 1/(1 + centre of mass)."""
        return 1.0 - 1.0 / (1.0 + self.centre_of_mass)

    @property
    def centre_of_mass(self) -> float:
        """In updates; may be changed between updates, the past then counts by the new decay from there on."""
        return self._centre_of_mass

    @centre_of_mass.setter
    def centre_of_mass(self, value: float) -> None:
        if not 0 <= value < float("inf"):
            raise ObjectiveError(f"centre_of_mass must be 0 or more and finite, got {value}")
        self._centre_of_mass = float(value)

    @torch.no_grad()
    def reset(self) -> None:
        """Set the average to the weights of now, as at a new policy phase."""
        self._in_place("reset")
        self.average = {
            name: own_part(parameter).to(_wide(parameter), copy=True)
            for name, parameter in self.parameters.items()
        }
        self.weight, self.updates = 1.0, 0

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights of now in: W' = decay W + 1, average += (p - average) / W'."""
        self._in_place("update")
        self.weight = self.decay * self.weight + 1.0
        for name, parameter in self.parameters.items():
            average = self.average[name]
            average.lerp_(own_part(parameter).to(average), 1.0 / self.weight)
        self.updates += 1

    @contextmanager
    def swapped(self, model: torch.nn.Module | None = None) -> Iterator[None]:
        """Put the averaged weights into the model, without gradients; the policy's are back on leaving.

        For `with average.swapped(model): prox_logprobs = score(model)`. Whole weights are not copied but cast
        to half precision; an exception inside restores too. Do not run a backward, step, save or update
        inside.

        Args:
            model: Module that owns the parameters; needed where FSDP2 shards them. Scoring is then a
                collective: every rank does as many forwards.
        """
        self._in_place("swapped")
        self._swapped = True
        try:
            with torch.no_grad(), exchanged(self.parameters, self.average, model):
                yield
        finally:
            self._swapped = False

    def state_dict(self) -> dict[str, Any]:
        """Return whole tensors and numbers to save; `load_state_dict` gives the same average, bit for bit.

        Of sharded weights it is a collective, and what is loaded may have been saved by any number of ranks.
        """
        return {
            "average": {
                name: gathered(value.clone(), self.parameters[name]) for name, value in self.average.items()
            },
            "weight": self.weight,
            "updates": self.updates,
            "centre_of_mass": self.centre_of_mass,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore; ObjectiveError names the first parameter that is missing, unknown or of another shape."""
        self._in_place("load_state_dict")
        saved = state["average"]
        for name in sorted(set(saved) ^ set(self.average)):
            where = "the saved average" if name in self.average else "this model"
            raise ObjectiveError(f"parameter {name} is not in {where}: the average belongs to other weights")
        for name, value in saved.items():
            if value.shape != self.parameters[name].shape:
                raise ObjectiveError(
                    f"parameter {name} was saved as {tuple(value.shape)}, the model has another shape"
                )
        for name, value in saved.items():
            self.average[name].copy_(part_of(value, self.parameters[name]))
        self.weight, self.updates = float(state["weight"]), int(state["updates"])
        self.centre_of_mass = float(state["centre_of_mass"])

    def _in_place(self, what: str) -> None:
        if self._swapped:
            raise ObjectiveError(
                f"{what} while the averaged weights stand in the model: leave swapped() first"
            )


def _wide(parameter: torch.nn.Parameter) -> torch.dtype:
    return torch.float32 if parameter.dtype in (torch.float16, torch.bfloat16) else parameter.dtype


def _refuse(name: str, parameter: torch.nn.Parameter) -> None:
    kind = type(parameter).__name__
    if kind == "FlatParameter":
        raise UnsupportedError(f"parameter {name} is sharded by FSDP1 ({kind}): use FSDP2 (fsdp_version: 2)")
    if parameter.is_meta or not parameter.is_floating_point():
        raise UnsupportedError(
            f"parameter {name} is {parameter.dtype} on {parameter.device}: only real weights average"
        )
    if parameter.numel() == 0:
        raise UnsupportedError(
            f"parameter {name} is empty here (sharded by DeepSpeed ZeRO-3?): gather it first"
        )

"""From a name to an entry of verl's table of policy losses, or to one clear line that says what verl does not hand over."""

from __future__ import annotations

from typing import Any

from trimtab.adapters.verl.losses import OBJECTIVES, policy_loss
from trimtab.adapters.verl.unsupported import REFUSED
from trimtab.errors import ObjectiveError, UnsupportedError


def register(*names: str, **numbers: Any) -> tuple[str, ...]:
    """Put `trimtab_<name>` into verl's POLICY_LOSS_REGISTRY and return these names; without names, all that need no number.

    Bounds of the clip, the dual clip and the denominator are verl's own settings (actor.clip_ratio_low, clip_ratio_high,
    clip_ratio_c, loss_agg_mode). What verl has no setting for is a number here: minirl `cap` (5), `importance`, `clip`; decoupled `cap` (100);
    decoupled_kl `beta`, `cap`, `estimator`. Raises UnsupportedError for an objective that needs what verl's policy losses are not
    given, and where verl is not installed; ObjectiveError for an unknown name or number.

    >>> register("veto")
    Traceback (most recent call last):
    trimtab.errors.UnsupportedError: verl hands its policy losses no rollout log-probabilities, so veto ...
    """
    for name in names:
        if name in REFUSED:
            raise UnsupportedError(REFUSED[name])
        if name not in OBJECTIVES:
            raise ObjectiveError(f"no objective is called {name!r}; verl can have {', '.join(OBJECTIVES)}")
    if numbers and len(names) != 1:
        raise ObjectiveError(
            f"{', '.join(numbers)}: give numbers with one objective, register('minirl', cap=5.0)"
        )
    chosen = names or tuple(name for name, own in OBJECTIVES.items() if not own.required)
    losses = {f"trimtab_{name}": policy_loss(name, **numbers) for name in chosen}
    try:
        from verl.trainer.ppo.core_algos import register_policy_loss
    except ModuleNotFoundError as missing:
        raise UnsupportedError(
            f"trimtab.adapters.verl needs verl 0.9 or later, but there is no module {missing.name}: pip install verl"
        ) from missing
    for name, loss in losses.items():
        register_policy_loss(name)(loss)
    return tuple(losses)

"""verl: the objectives of trimtab as verl policy losses, `policy_loss.loss_mode=trimtab_<name>`.

    actor_rollout_ref.model.external_lib=trimtab.adapters.verl.plugin
    actor_rollout_ref.actor.policy_loss.loss_mode=trimtab_minirl

`plugin` calls `register()` in every process that reads the model's config; a module of the user's own may
call `register("minirl", cap=3.0)` instead. docs/reference/objectives.md has the table of what verl's
signature can carry and what it cannot.
"""

from trimtab.adapters.verl.policy_losses import register

__all__ = ["register"]

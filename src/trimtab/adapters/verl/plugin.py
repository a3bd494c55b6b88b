"""Registration of every objective that verl's policy losses can express, on import; verl's `external_lib`."""

from trimtab.adapters.verl.policy_losses import register

register()

"""Watch a TRL trainer with one line; TRL itself is not edited.

from trimtab.adapters.trl import watch

watch(trainer, "runs/exp1")
trainer.train()
"""

from trimtab.adapters.trl.attach import watch
from trimtab.adapters.trl.control.broken_rows import exclude_broken
from trimtab.adapters.trl.control.task_outcomes import curriculum

__all__ = ["curriculum", "exclude_broken", "watch"]

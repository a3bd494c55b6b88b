"""SkyRL's trainers, synchronous and fully asynchronous: the training batch of each step, watched.

    with watch(trainer, "runs/exp1"):
        asyncio.run(trainer.train())

Nothing of SkyRL is imported: the trainer's methods are wrapped (`docs/how-to/tinker.md`).
A loop on SkyRL's Tinker API is watched by `trimtab.adapters.tinker`.
"""

from trimtab.adapters.skyrl.trainer_hooks import watch

__all__ = ["watch"]

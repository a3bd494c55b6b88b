"""Trainers built from `trimtab.objectives`, the lab under TRL, and the demo.

from trimtab.training import MiniRLConfig, MiniRLTrainer  # in place of TRL's GRPOConfig and GRPOTrainer

The names load TRL only when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.training.minirl import MiniRLConfig, MiniRLTrainer

__all__ = ["MiniRLConfig", "MiniRLTrainer"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import trimtab.training.minirl as minirl

        return getattr(minirl, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

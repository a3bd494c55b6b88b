"""MiniRL, PPO-EWMA, corrections and routing replay as a subclass of TRL's GRPOTrainer."""

from trimtab.training.minirl.config import MiniRLConfig
from trimtab.training.minirl.trainer import MiniRLTrainer

__all__ = ["MiniRLConfig", "MiniRLTrainer"]

"""Keys of trainers of agents on top of others: OpenPipe's ART and Microsoft's agent-lightning.

- ART, read at openpipe-art 0.5.18 (PyPI): `art/model.py` (`history.jsonl` and W&B), `art/loss.py` (estimators),
  `art/unsloth/train.py`, `art/megatron/service.py`, `art/tinker_native/backend.py` (names of losses).
- agent-lightning, read at microsoft/agent-lightning@c632d8d: `agentlightning/verl/rollout_adapter.py` and `trainer.py`.
  It trains with verl and logs through verl's trackers, so that verl's keys are its keys too.
"""

from __future__ import annotations

from trimtab.metric_logs.frameworks.base import Framework
from trimtab.metric_logs.frameworks.verl_keys import VERL

ART = Framework(
    name="art",
    versions="openpipe-art 0.5.18",
    keys={
        "reward": ("train/reward",),
        "reward_std": ("train/reward_std_dev",),
        "held_out_reward": ("val/reward", "test/reward"),
        "kl": ("loss/kl_policy_ref",),
        "entropy": ("loss/entropy",),
        "grad_norm": ("loss/grad_norm",),
        "loss": ("loss/train",),
        "learning_rate": ("loss/learning_rate",),
        "length": ("train/completion_tokens",),
        "step_s": ("time/step_wall_s",),
        "generation_s": ("time/step_actor_s",),
        "tokens_per_s": ("throughput/avg_trainer_tok_per_s",),
    },
    notes={
        "loss/kl_policy_ref": "kl: ART logs the mean log-ratio (k1), which may be negative",
        "loss/grad_norm": "ART's history.jsonl drops NaN: it shows as a gap, not as a number (infinity stays)",
        "train/completion_tokens": "length: tokens of one completion, not of a whole trajectory",
        "throughput/avg_trainer_tok_per_s": "tokens_per_s: a mean since the start, so that a slow step hardly shows",
    },
)

AGENT_LIGHTNING = Framework(
    name="agent-lightning",
    versions="c632d8d (2026-08-22), beside verl's keys",
    keys={
        **VERL.keys,
        "reward": ("training/reward", *VERL.keys["reward"]),
        "length": ("response_length/training/avg_by_turn", *VERL.keys["length"]),
        "length_max": ("response_length/training/max_by_turn", *VERL.keys["length_max"]),
        "held_out_reward": ("val/reward",),
    },
    patterns={"held_out_reward": (r"val/[^/]+/reward", *VERL.patterns["held_out_reward"])},
    notes={
        **VERL.notes,
        "response_length/training/avg_by_turn": "length: tokens of one turn, not of a whole rollout",
    },
)

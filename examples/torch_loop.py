"""Watch a plain PyTorch loop: REINFORCE on the lab's tool-using agent, no trainer, in under 80 lines."""

from __future__ import annotations

import argparse
import copy

import numpy as np
import torch

import trimtab
from trimtab.lab.experiments import open_arm
from trimtab.lab.model import load_agent
from trimtab.lab.rollout import rollout

GROUPS, SIZE = 8, 8


def pad(rows: list[list[float]], left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor(
        [[0] * (width - len(r)) + list(r) if left else list(r) + [0] * (width - len(r)) for r in rows]
    )


def logps_of(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> torch.Tensor:
    """(B, T) log-probabilities of the last `keep` tokens."""
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -keep - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[:, -keep:, None])[..., 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="runs/torch_loop")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, _ = load_agent()
    reference = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lab = open_arm("open", steps=options.steps, prompts_per_step=GROUPS)

    with trimtab.open_run(options.folder) as run:
        for step in range(options.steps):
            prompts = [p for p in lab.prompts[GROUPS * step : GROUPS * (step + 1)] for _ in range(SIZE)]
            episodes = rollout(model, prompts, lab.toolbox, step=step)
            reward = np.array([float(e.final == e.task.answer) for e in episodes])
            groups = reward.reshape(GROUPS, SIZE)
            advantage = (
                (groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-4)
            ).ravel()

            exists = pad([[1] * len(e.ids) for e in episodes]) > 0
            loss_mask = pad([e.env_mask for e in episodes]) > 0
            ids = torch.cat(
                [pad([e.prompt_ids for e in episodes], left=True), pad([e.ids for e in episodes])], dim=1
            )
            mask = torch.cat([pad([[1] * len(e.prompt_ids) for e in episodes], left=True) > 0, exists], dim=1)
            logps = logps_of(model, ids, mask, exists.size(1))
            loss = -(logps * torch.tensor(advantage)[:, None] * loss_mask).sum() / loss_mask.sum()
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with torch.no_grad():
                ref = logps_of(reference, ids, mask, exists.size(1))
            optimizer.step()
            run.observe(
                loss_mask=loss_mask.numpy(), exists=exists.numpy(), logprobs=logps.detach().numpy(), ref_logprobs=ref.numpy(),
                rollout_logprobs=pad([e.logprobs for e in episodes]).numpy(), advantages=advantage, reward=reward,
                tools=[[c.split(" ")[0] for c in e.called] for e in episodes], tool_names=("price", "stock", "owner"),
            )  # fmt: skip
            run.flush(step, {"loss": loss.item(), "grad_norm": norm.item(), "reward": reward.mean()})
    print(f"trimtab diagnose {options.folder}")


if __name__ == "__main__":
    main()

"""Let a guard act on a loop of one's own: `LoopControls` is all that it needs of the trainer."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

import trimtab
from torch_loop import GROUPS, SIZE, logps_of, pad
from trimtab.guard.stable_states import StateRing
from trimtab.lab.experiments import open_arm
from trimtab.lab.model import load_agent
from trimtab.lab.rollout import rollout


class LoopControls:
    """The levers of this loop: learning rate, and a cap on sequence weights; its state; and its end."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, rate: float) -> None:
        self.model, self.optimizer, self.rate = model, optimizer, rate
        self.values: dict[str, float] = {"lr_scale": 1.0, "sequence_is_cap": math.inf}
        self.running, self.redraws = True, 0

    def levers(self) -> Mapping[str, tuple[str, ...]]:
        return dict.fromkeys(self.values, ("all",))

    def get(self, lever: str, slice_name: str = "all") -> float:  # noqa: ARG002
        return self.values[lever]

    def set(self, lever: str, slice_name: str, value: float) -> None:  # noqa: ARG002
        self.values[lever] = value
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * self.values["lr_scale"]

    def save(self, folder: Path) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state | {"random": torch.get_rng_state()}, folder / "state.pt")

    def restore(self, folder: Path) -> None:
        state = torch.load(folder / "state.pt")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.redraws += 1  # other prompts from here on; this loop samples with the model itself

    def stop(self) -> None:
        self.running = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="runs/guarded_loop")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guard", default="recommended")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, _ = load_agent()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    controls, states = LoopControls(model, optimizer, 1e-4), StateRing(f"{options.folder}-states", size=3)
    lab = open_arm("open", steps=4 * options.steps, prompts_per_step=GROUPS)

    with trimtab.open_run(options.folder, guard=options.guard, controls=controls, states=states) as run:
        for step in range(options.steps):
            first = GROUPS * (step + options.steps * (controls.redraws % 4))
            prompts = [prompt for prompt in lab.prompts[first : first + GROUPS] for _ in range(SIZE)]
            episodes = rollout(model, prompts, lab.toolbox, step=step)
            reward = np.array([float(e.final == e.task.answer) for e in episodes])
            advantage = torch.tensor((reward.reshape(GROUPS, SIZE) - reward.reshape(GROUPS, SIZE).mean(1, keepdims=True)).ravel())  # fmt: skip
            exists, loss_mask = (
                pad([[1] * len(e.ids) for e in episodes]) > 0,
                pad([e.env_mask for e in episodes]) > 0,
            )
            starts, own = pad([e.prompt_ids for e in episodes], left=True), pad([e.ids for e in episodes])
            shown = torch.cat(
                [pad([[1] * len(e.prompt_ids) for e in episodes], left=True) > 0, exists], dim=1
            )
            logps = logps_of(model, torch.cat([starts, own], dim=1), shown, exists.size(1))
            sampled = pad([e.logprobs for e in episodes])
            weight = ((logps.detach() - sampled) * loss_mask).sum(1).exp()
            cap = controls.values["sequence_is_cap"]  # inf: every sequence is trained on
            trained = loss_mask * ((weight <= cap) & (weight >= 1 / cap))[:, None]
            loss = -(logps * advantage[:, None] * trained).sum() / loss_mask.sum()
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if run.before_update(step, norm.item()):  # False: the gradient is not finite, or exploding
                optimizer.step()
            run.observe(
                loss_mask=loss_mask.numpy(), exists=exists.numpy(), logprobs=logps.detach().numpy(),
                rollout_logprobs=sampled.numpy(), advantages=advantage.numpy(), reward=reward,
                tools=[[c.split(" ")[0] for c in e.called] for e in episodes], tool_names=("price", "stock", "owner"),
            )  # fmt: skip
            run.flush(step, {"loss": loss.item(), "grad_norm": norm.item(), "reward": reward.mean()})
            if not controls.running:
                break
    print(f"trimtab diagnose {options.folder}")


if __name__ == "__main__":
    main()

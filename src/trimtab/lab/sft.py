"""The recipe of the shipped agent: python -m trimtab.lab.sft --out FOLDER [--steps N] [--seed S]

A scripted agent plays tasks through the real tools; its labels are spoiled on purpose so that RL has
head-room. Tool outputs are constrained or mildly open; no rare character ever appears. The world differs from
the one RL uses.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch
from transformers import LlamaForCausalLM

from trimtab.lab.agent_episode import Corruption, Episode, script
from trimtab.lab.database import World
from trimtab.lab.model import fresh_agent, save_agent
from trimtab.lab.ramp import Ramp
from trimtab.lab.rollout import rollout
from trimtab.lab.tasks import TaskMix, parse_task
from trimtab.lab.tokenizer import PAD
from trimtab.lab.tool_output import COMMON, OutputStyle
from trimtab.lab.toolbox import Toolbox

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SFT_WORLD = 9001
CONSTRAINED = OutputStyle()
MILD = OutputStyle(open=True, length=Ramp.constant(7))
SPOIL = Corruption(wrong=0.22, no_call=0.1, bad_item=0.05)
DRILLS = 0.875


def sft_episode(world: World, seed: int, step: int, row: int, *, drill: bool = False) -> Episode:
    """The training example at this place: half of the tool outputs constrained, half mildly open, labels
    spoiled.

    `drill` is for the first DRILLS of training: nothing spoiled, and a third of the rows copy a random
    string. Without them a copy of digits, on which everything rests, comes much later (after 1,050 steps:
    price .61 against 1.00).
    """
    rng = np.random.default_rng([seed, 303, step, row])
    mix = TaskMix(world, seed=seed, alpha=Ramp.constant(0.7), both=0.15)
    style = CONSTRAINED if row % 2 else MILD
    letters = "".join(COMMON[int(i)] for i in rng.integers(0, 36, int(rng.integers(4, 20))))
    prompt = f"copy {letters}?" if drill and rng.random() < 1 / 3 else mix.prompt(step, row)
    episode = Episode(parse_task(prompt, world), Toolbox(world, style, seed), step, row)
    return script(episode, rng, Corruption() if drill else SPOIL)


def _batch(episodes: Sequence[Episode]) -> Batch:
    rows = [e.prompt_ids + e.ids for e in episodes]
    own = [[0] * len(e.prompt_ids) + e.env_mask for e in episodes]
    width = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    labels = ids.masked_fill(torch.tensor([m + [0] * (width - len(m)) for m in own]) == 0, -100)
    return ids, (ids != PAD).long(), labels


def _batches(world: World, seed: int, pool: int, size: int, drill: bool) -> list[Batch]:
    """Four batches of neighbouring lengths (half the padding), in random order."""
    episodes = [sft_episode(world, seed, pool, row, drill=drill) for row in range(4 * size)]
    episodes.sort(key=lambda e: len(e.prompt_ids) + len(e.ids))
    order = np.random.default_rng([seed, 404, pool]).permutation(4)
    return [_batch(episodes[int(k) * size : (int(k) + 1) * size]) for k in order]


def _lr_factor(step: int, drills: int, steps: int) -> float:
    """Warm up, hold, fall to a twentieth by the end of the drills; then again from a fifth."""
    if step < drills:
        return min((step + 1) / 50, 1.0, max(0.05, (drills - step) / (0.3 * drills)))
    return 0.2 * max(0.05, (steps - step) / (steps - drills))


def train(steps: int, seed: int = 0, batch: int = 48, lr: float = 3e-3) -> LlamaForCausalLM:
    """Train from scratch on the tokens of the scripted agent (not on prompts, not on tool tokens)."""
    model, world = fresh_agent(seed), World(SFT_WORLD)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    drills = round(DRILLS * steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _lr_factor(step, drills, steps))
    start = time.perf_counter()
    queue: list[Batch] = []
    for step in range(steps):
        queue = queue or _batches(world, seed, step // 4, batch, drill=step < drills)
        ids, mask, labels = queue.pop()
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {loss.item():.3f}  {time.perf_counter() - start:.0f} s", flush=True)
    return model.eval()


def evaluate(
    model: LlamaForCausalLM, style: OutputStyle, *, n: int = 256, seed: int = 1, step: int = 0
) -> dict[str, float]:
    """Share of exact answers in all, in tool tasks and per kind, and of tool tasks with a call, in a fresh
    world.
    """
    world = World(seed)
    mix = TaskMix(world, seed=seed, alpha=Ramp.constant(0.7))
    prompts = [mix.prompt(step, row) for row in range(n)]
    episodes = rollout(model, prompts, Toolbox(world, style, seed), step=step, seed=seed)
    right = [(e.task.kind, e.final == e.task.answer, bool(e.task.calls), bool(e.called)) for e in episodes]
    shares = {"all": [ok for _, ok, _, _ in right], "tool": [ok for _, ok, tool, _ in right if tool]}
    shares["call_rate"] = [called for _, _, tool, called in right if tool]
    for kind in sorted({kind for kind, *_ in right}):
        shares[kind] = [ok for name, ok, _, _ in right if name == kind]
    return {name: float(np.mean(values)) for name, values in shares.items()}


def main() -> None:
    """Train, print what the agent can do, save."""
    parser = argparse.ArgumentParser(description="Rebuild the lab's agent.")
    parser.add_argument("--out", required=True, help="folder for config, weights and tokenizer")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = train(args.steps, args.seed)
    for name, style in (("constrained", CONSTRAINED), ("mild", MILD)):
        print(name, {key: round(value, 3) for key, value in evaluate(model, style).items()})
    save_agent(model, args.out)


if __name__ == "__main__":
    main()

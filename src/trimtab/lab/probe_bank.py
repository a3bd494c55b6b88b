"""Fixed transcripts: scored every step, they show the change of the policy, not of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.lab.agent_episode import Episode, script
from trimtab.lab.database import World
from trimtab.lab.ramp import Ramp
from trimtab.lab.tasks import TaskMix, parse_task
from trimtab.lab.tokenizer import PAD
from trimtab.lab.tool_output import OutputStyle
from trimtab.lab.toolbox import Toolbox
from trimtab.typing import Bool, Int64

PROBE_WORLD = 9002
STYLES = {
    "text": OutputStyle(),
    "constrained": OutputStyle(),
    "open": OutputStyle(open=True, length=Ramp.constant(20), rare=Ramp.constant(0.5)),
    "open_in_distribution": OutputStyle(open=True, length=Ramp.constant(20)),
}


@dataclass(frozen=True, eq=False)
class ProbeBank:
    """B transcripts of T tokens, padded on the right; all arrays are (B, T) unless said otherwise.

    `loss_mask`: tokens the agent wrote. `env_mask`: False on tool tokens, prompt and padding True (TRL's
    meaning). `attention_mask`: False on padding. `tool_index`: 0 before the first result, then the tool that
    spoke last.
    """

    ids: Int64
    attention_mask: Bool
    loss_mask: Bool
    env_mask: Bool
    tool_index: Int64
    prompt_lengths: Int64  # (B,)
    style: tuple[str, ...]  # (B,) a key of STYLES

    @property
    def post_tool(self) -> Bool:
        """Tokens the agent wrote after a tool result."""
        return self.loss_mask & (self.tool_index > 0)


def probe_bank(n: int = 32, seed: int = 0) -> ProbeBank:
    """`n` flawless episodes, a quarter each: text-only, constrained, open with rare characters, open without.

    The same arrays for the same arguments on every machine. Raises ValueError for n < 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    world = World(PROBE_WORLD)
    names = [tuple(STYLES)[row % len(STYLES)] for row in range(n)]
    episodes = [_episode(world, name, seed, row) for row, name in enumerate(names)]
    blank = [0] * max(len(e.prompt_ids) + len(e.ids) for e in episodes)

    def padded(rows: list[list[int]], fill: int = 0) -> Int64:
        return np.array([row + [fill] * (len(blank) - len(row)) for row in rows], dtype=np.int64)

    lengths = np.array([len(e.prompt_ids) for e in episodes], dtype=np.int64)
    prompts = [[0] * length for length in lengths]
    own = padded([p + e.env_mask for p, e in zip(prompts, episodes, strict=True)]).astype(np.bool_)
    tool = padded([p + e.tool_index for p, e in zip(prompts, episodes, strict=True)])
    present = padded([[1] * (len(e.prompt_ids) + len(e.ids)) for e in episodes]).astype(np.bool_)
    in_prompt = np.arange(len(blank)) < lengths[:, None]
    return ProbeBank(
        ids=padded([e.prompt_ids + e.ids for e in episodes], PAD),
        attention_mask=present,
        loss_mask=own,
        env_mask=own | in_prompt | ~present,
        tool_index=tool,
        prompt_lengths=lengths,
        style=tuple(names),
    )


def _episode(world: World, name: str, seed: int, row: int) -> Episode:
    mix = TaskMix(world, seed=seed, alpha=Ramp.constant(float(name != "text")))
    toolbox = Toolbox(world, STYLES[name], seed)
    episode = Episode(parse_task(mix.prompt(0, row), world), toolbox, row=row)
    return script(episode, np.random.default_rng([seed, 505, row]))

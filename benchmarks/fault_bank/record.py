"""Record the pool of healthy batches: the lab's agent under the lean loop, scored by every policy that a fault needs.

    python -m benchmarks.fault_bank.record [--seeds 300 301 302]

Each seed trains the shipped agent at a calm rate, half of the prompts with tools; 40 steps are kept, before the policy grows sharp. A step is
48 rollouts of 6 prompts, sampled by a copy of the weights in 8 bits. Each token that the policy wrote has its log-probability
under: the sampler; the trainer when it was sampled and 1, 2, 3 and 8 updates later; the trainer at temperatures 1.3 and 1.1; the trainer with
weights of 3 and 5 bits; the first policy; and that of another token than the sampled one. Differences are kept to 1 part in 64.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from reproduce.collapse_bank.batches import Array
from reproduce.collapse_bank.loop import Loop, Rows, Sampled
from reproduce.collapse_bank.regimes import Regime
from reproduce.collapse_bank.rewards import score
from reproduce.collapse_bank.transformer import Weights, load_weights, logits_of, quantise

from trimtab.lab.ramp import Ramp

POOL = Path(__file__).parent / "pool.npz"
LEARN, KEEP, LATER = 5, 40, 9
RATE = 2.5e-4
TEMPERATURES = {"hot": 1.3, "warm": 1.1}
BITS = {"coarse": 3, "fine": 5}
LATER_WEIGHTS = (1, 2, 3, 8)


class KeepingLoop(Loop):
    """A loop that keeps what it sampled, and its weights before every step."""

    def __init__(self, start: Weights, regime: Regime, seed: int) -> None:
        self.sampled: dict[int, Sampled] = {}
        self.history: dict[int, Weights] = {}
        super().__init__(start, regime, seed)

    def _sample(self, batch: int) -> Sampled:
        self.sampled[batch] = one = super()._sample(batch)
        return one

    def step(self) -> Any:
        self.history[self.steps_done] = quantise(self.weights, 0)
        return super().step()


@torch.no_grad()
def scores(
    weights: Weights, rows: Rows, temperature: float = 1.0, draws: Array | None = None
) -> dict[str, Array]:
    """Log-probability, entropy and log-probability of another token (drawn by `draws`) at every completion token, packed."""
    names = ("logprob", "entropy", "other")
    result = {name: torch.zeros(rows.ids.shape) for name in names}
    other = None if draws is None else torch.from_numpy(draws)
    for chosen, width in rows.chunks():
        ids = rows.ids[chosen, :width]
        logp = torch.log_softmax(logits_of(weights, ids) / temperature, dim=-1)[:, :-1]
        result["logprob"][chosen, 1:width] = logp.gather(-1, ids[:, 1:, None])[..., 0]
        result["entropy"][chosen, 1:width] = -(logp.exp() * logp).sum(-1)
        if other is not None:
            shift = 1 + other[chosen, 1:width] % (logp.shape[-1] - 1)
            result["other"][chosen, 1:width] = logp.gather(
                -1, ((ids[:, 1:] + shift) % logp.shape[-1])[..., None]
            )[..., 0]
    return {name: rows.packed(values) for name, values in result.items()}


def record_seed(seed: int) -> dict[str, Array]:
    """Columns of the kept steps of one seed."""
    torch.set_num_threads(1)
    start = load_weights()
    regime = Regime(Ramp.constant(RATE), lag=1, bits=8, alpha=Ramp.constant(0.5))
    loop = KeepingLoop(start, regime, seed)
    rewards = [loop.step().reward for _ in range(LEARN + KEEP + LATER + 2)]
    print(
        seed,
        "reward",
        " ".join(f"{np.mean(rewards[i : i + 10]):.2f}" for i in range(0, len(rewards), 10)),
        flush=True,
    )
    rng = np.random.default_rng([seed, 909])
    steps = [_step(loop, start, number, rng) for number in range(LEARN + 1, LEARN + KEEP + 1)]
    return {name: np.concatenate([one[name] for one in steps]) for name in steps[0]}


def _step(loop: KeepingLoop, start: Weights, number: int, rng: np.random.Generator) -> dict[str, Array]:
    sampled = loop.sampled[number]
    rows, version = Rows(sampled.episodes), sampled.version
    draws = rng.integers(0, 1 << 30, tuple(rows.ids.shape))
    now = scores(loop.history[version], rows, draws=draws)
    base = now["logprob"]
    columns: dict[str, Array] = {"logprob": base, "entropy": now["entropy"], "other": now["other"]}
    columns["sampler"] = rows.packed(rows.sampled) - base
    for later in LATER_WEIGHTS:
        columns[f"later{later}"] = scores(loop.history[version + later], rows)["logprob"] - base
    for name, temperature in TEMPERATURES.items():
        at = scores(loop.history[version], rows, temperature)
        columns[name], columns[f"{name}_entropy"] = at["logprob"] - base, at["entropy"] - now["entropy"]
    for name, bits in BITS.items():
        columns[name] = scores(quantise(loop.history[version], bits), rows)["logprob"] - base
    columns["first"] = scores(start, rows)["logprob"] - base
    own = rows.packed(rows.own)
    kept = {
        name: rounded(np.where(own | (name == "logprob"), values, 0.0)) for name, values in columns.items()
    }
    labels, rewarded = rows.labels(), score(sampled.episodes, sampled.toolbox, loop.regime)
    return {
        **kept, "own": own, "ids": rows.packed(rows.ids).astype(np.uint8),
        "lengths": labels["token_counts"].astype(np.uint8), "kind": labels["kind"].astype(np.uint8),
        "stop": labels["stop"].astype(np.uint8), "call_counts": labels["call_counts"].astype(np.uint8),
        "calls": rows.calls(), "correct": rewarded["correct"].astype(np.uint8), "format": rewarded["format"].astype(np.float16),
        "norm": np.array([number], np.int16),
    }  # fmt: skip


def rounded(values: Array, bits: int = 6) -> Array:
    """Half precision with so many bits of the fraction, which packs better."""
    half = np.asarray(values, np.float16)
    drop = 10 - bits
    whole = (half.view(np.uint16).astype(np.int64) + (1 << (drop - 1))) >> drop << drop
    return np.asarray(whole.astype(np.uint16)).view(np.float16)


def main() -> None:
    """Write the pool."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[300, 301, 302])
    options = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(len(options.seeds)) as pool:
        columns = dict(zip(options.seeds, pool.map(record_seed, options.seeds), strict=True))
    arrays = {
        f"{seed}/{name}": values for seed, of_seed in columns.items() for name, values in of_seed.items()
    }
    np.savez_compressed(POOL, **arrays)  # type: ignore[arg-type]
    print(f"{POOL.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()

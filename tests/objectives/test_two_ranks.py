"""Two real ranks under DDP: the step's gradient and the weight average are those of one process with the whole batch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.support import leave_group
from trimtab.objectives import WeightAverage, local_denominator, minirl, trainable

ROWS, TOKENS, WORDS = 8, 6, 11
LIMIT_S = 240


def data():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, WORDS, (ROWS, TOKENS), generator=generator)
    mask = torch.rand(ROWS, TOKENS, generator=generator) < 0.7
    shift = 0.3 * torch.randn(2, ROWS, TOKENS, generator=generator, dtype=torch.float64)
    return ids, mask, shift, torch.randn(ROWS, generator=generator, dtype=torch.float64)


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Embedding(WORDS, 5), torch.nn.Linear(5, WORDS)).double()


def loss(net, rows, denominator):
    ids, mask, shift, advantages = (part[rows] if part.dim() < 3 else part[:, rows] for part in data())
    logp = torch.log_softmax(net(ids), -1).gather(-1, ids.roll(1, 1)[..., None])[..., 0]
    old = logp.detach() + shift[0]
    return minirl(logp, old, old + shift[1], advantages, mask, denominator=denominator).value


def steps(net, average, batches, denominator):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        for rows in batches:  # what Accelerator.backward does: divide by the accumulation steps
            (loss(net, rows, denominator) / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update()


def rank_main(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    net = torch.nn.parallel.DistributedDataParallel(model())
    average = WeightAverage(trainable(net.module), centre_of_mass=2.0)
    micro = [slice(4 * rank, 4 * rank + 2), slice(4 * rank + 2, 4 * rank + 4)]
    steps(net, average, micro, local_denominator(ROWS, ranks_averaged=2, steps_averaged=2))
    torch.save((net.module.state_dict(), average.state_dict()), Path(folder) / f"{rank}.pt")
    del net
    leave_group()


@pytest.mark.slow
def test_two_ranks_of_two_micro_batches_train_as_one(tmp_path):
    net = model()
    average = WeightAverage(trainable(net), centre_of_mass=2.0)
    steps(net, average, [slice(0, ROWS)], local_denominator(ROWS))
    ranks = mp.spawn(rank_main, (str(tmp_path),), nprocs=2, join=False, daemon=True)
    deadline = time.monotonic() + LIMIT_S
    while not ranks.join(timeout=1):
        if time.monotonic() > deadline:
            for process in ranks.processes:
                process.kill()
            pytest.fail("the ranks wait for ever")
    saved = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    moved = model().state_dict()
    for name, value in net.state_dict().items():
        assert not torch.equal(value, moved[name])
        for weights, state in saved:
            torch.testing.assert_close(weights[name], value, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(state["average"][name], average.average[name], rtol=1e-10, atol=1e-12)
        assert torch.equal(saved[0][1]["average"][name], saved[1][1]["average"][name])

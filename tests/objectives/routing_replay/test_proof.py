"""Routers that a proof must refuse, each with its reason, and one that it takes."""

from __future__ import annotations

import pytest
import torch

from trimtab.errors import UnsupportedError
from trimtab.objectives.routing_replay import RoutingReplay

EXPERTS, TOP = 6, 2


class TopKRouter(torch.nn.Linear):
    """Softmax over all experts, normalised over the chosen."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(8, EXPERTS, bias=False)

    def forward(self, hidden):
        logits = super().forward(hidden)
        scores = logits.softmax(-1)
        gates, experts = scores.topk(TOP, dim=-1)
        return logits, gates / gates.sum(-1, keepdim=True), experts


class BestSumRouter(TopKRouter):
    """The same for its own choice; for another it still divides by the best scores' sum."""

    def forward(self, hidden):
        logits = torch.nn.Linear.forward(self, hidden)
        scores = logits.softmax(-1)
        gates, experts = scores.topk(TOP, dim=-1)
        return logits, gates / scores.sort(-1, descending=True)[0][:, :TOP].sum(-1, keepdim=True), experts


class TrainingNoiseRouter(TopKRouter):
    """Gates of logits that it does not return, in training alone."""

    def forward(self, hidden):
        logits, gates, experts = super().forward(hidden)
        return logits, gates * torch.rand_like(gates) if self.training else gates, experts


class HalfTypeRouter(TopKRouter):
    """Its own gates in float32; another function under autocast."""

    def forward(self, hidden):
        logits, gates, experts = super().forward(hidden)
        return logits, gates if logits.dtype == torch.float32 else gates * 0.5, experts


class SortRouter(TopKRouter):
    """It sorts instead, so it cannot be forced."""

    def forward(self, hidden):
        logits = torch.nn.Linear.forward(self, hidden)
        gates, experts = logits.softmax(-1).sort(-1, descending=True)
        return logits, gates[:, :TOP], experts[:, :TOP]


class SwapRouter(TopKRouter):
    """A top-k whose answer is not what it uses."""

    def forward(self, hidden):
        logits, _, _ = super().forward(hidden)
        experts = logits.sort(-1, descending=True)[1][:, :TOP]
        return logits, logits.gather(1, experts), experts


class EqualRouter(TopKRouter):
    """Weights of zero: every recipe would give its gates."""

    def __init__(self):
        super().__init__()
        torch.nn.init.zeros_(self.weight)


UNKNOWN = "computes its gates in a way"


def test_a_router_of_no_known_name_is_taken_by_its_proof():
    replay = RoutingReplay(torch.nn.Sequential(TopKRouter()))
    assert str(replay.routers[0].recipe).startswith("softmax over")
    assert (replay.num_experts, replay.top_k) == (EXPERTS, TOP)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (BestSumRouter, UNKNOWN),
        (TrainingNoiseRouter, UNKNOWN),
        (HalfTypeRouter, UNKNOWN),
        (SortRouter, "does not choose by a top-k"),
        (SwapRouter, "changes its choice after the top-k"),
        (EqualRouter, "weights are all equal"),
    ],
)
def test_a_router_without_a_proof_is_refused_with_its_reason(kind, why):
    model = torch.nn.Sequential(kind())
    with pytest.raises(UnsupportedError, match=f"0 is a {kind.__name__}, which .*{why}"):
        RoutingReplay(model)
    assert model[0].training


def test_experts_without_a_router_are_refused():
    block = torch.nn.Module()
    block.gate, block.experts = torch.nn.Linear(8, 4), torch.nn.ModuleList([torch.nn.Linear(8, 8)])
    with pytest.raises(UnsupportedError, match="1 is a Module with experts, but without a router module"):
        RoutingReplay(torch.nn.Sequential(TopKRouter(), block))

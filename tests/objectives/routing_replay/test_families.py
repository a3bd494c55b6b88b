"""Every family of transformers with a router: proven as the page says, or refused as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.objectives.routing_replay.families import (
    EXPERTS,
    OWN,
    families,
    forced_choice,
    tiny_family,
    transformers,
)
from trimtab.errors import UnsupportedError
from trimtab.objectives.routing_replay import RoutingReplay

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| `(\w+)` \| (proven|refused) \| (.+) \|$", re.MULTILINE)
PAGE = {
    name: (outcome, detail)
    for name, outcome, detail in ROW.findall((ROOT / "docs/reference/routers.md").read_text())
}
PINNED = f"transformers=={transformers.__version__}\n" in (ROOT / "constraints-dev.txt").read_text()
INSTALLED = families()
REFUSED = re.compile(
    r"^[^\n]+( is a \w+, which routing replay cannot replay: [^\n]+| is a \w+ with experts, but without a router module)$"
    r"|^\w+ has no router: [^\n]+$"
)


def test_the_page_lists_every_family_with_a_router():
    if not PINNED:
        pytest.skip(f"transformers {transformers.__version__} is not the version of the page")
    assert sorted(PAGE) == sorted(INSTALLED)


def tiny_forward(family):
    """The model, its logits before any hook, and the tokens."""
    ids = torch.randint(3, 31, (2, 6), generator=torch.Generator().manual_seed(0))
    try:
        model = tiny_family(family)
        return model, model(input_ids=ids, use_cache=False).logits, ids
    except (RuntimeError, TypeError, AttributeError, ValueError) as error:
        if PINNED:
            raise
        pytest.skip(f"transformers {transformers.__version__} does not run this tiny {family}: {error}")


def proven(model):
    try:
        return RoutingReplay(model), ""
    except UnsupportedError as error:
        return None, str(error)


def logits_and_gradients(model, replay, ids):
    model.zero_grad()
    logits = model(input_ids=ids, use_cache=False).logits
    logits.float().logsumexp(-1).sum().backward()
    return logits.detach(), [next(r.module.parameters()).grad.clone() for r in replay.routers]


def test_layers_that_look_experts_up_by_token_are_refused_as_the_page_says(monkeypatch):
    if not PINNED:
        pytest.skip(f"transformers {transformers.__version__} is not the version of the page")
    monkeypatch.setitem(OWN, "deepseek_v4", {"mlp_layer_types": ["hash_moe", "moe"]})
    default = transformers.DeepseekV4Config().mlp_layer_types
    assert default[:4] == ["hash_moe"] * 3 + ["moe"]
    with pytest.raises(UnsupportedError) as refused:
        RoutingReplay(tiny_family("deepseek_v4"))
    reason = str(refused.value).partition(" is a ")[2].partition(" (")[0]
    assert reason.startswith("DeepseekV4HashRouter, ")
    assert f"`{reason}`" in " ".join((ROOT / "docs/reference/routers.md").read_text().split())


@pytest.mark.parametrize("family", sorted(PAGE))
def test_a_family_replays_as_its_own_code_or_is_refused_by_class(family):
    if family not in INSTALLED:
        pytest.skip(f"transformers {transformers.__version__} has no router class for {family}")
    outcome, detail = PAGE[family]
    model, plain, ids = tiny_forward(family)
    replay, refusal = proven(model)
    if replay is None:
        assert REFUSED.search(refusal), refusal
        assert not PINNED or (outcome == "refused" and detail in refusal), refusal
        return
    recipes = "; ".join(sorted({str(router.recipe) for router in replay.routers}))
    assert not PINNED or (outcome, detail) == ("proven", recipes)
    with torch.no_grad(), replay.recording() as recording:
        model(input_ids=ids, use_cache=False)
    with replay.replaying(recording.routes(2)), torch.no_grad():
        assert torch.equal(model(input_ids=ids, use_cache=False).logits, plain)
    shape = (2, 6, len(replay.layers), EXPERTS)
    other = torch.rand(shape, generator=torch.Generator().manual_seed(1)).topk(replay.top_k).indices
    with replay.replaying(other):
        logits, gradients = logits_and_gradients(model, replay, ids)
    with forced_choice(replay.routers, other):
        own, own_gradients = logits_and_gradients(model, replay, ids)
    assert torch.equal(logits, own)
    assert not torch.equal(logits, plain)
    for gradient, expected in zip(gradients, own_gradients, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-6)

"""llama.cpp's logits are the policy's, its draws follow them, and rows, ends and bad numbers are handled."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.training.llamacpp.support import KINDS, loaded, owner, read_back, tiny, torch_logits
from trimtab.errors import ObjectiveError
from trimtab.lab.model import load_agent
from trimtab.training.llamacpp.sampling import Sampling

pytestmark = pytest.mark.llama
# how far llama.cpp's logits may be from float32 with the file's own numbers: its arithmetic, by format (here they spread by 1.7)
NEAR = {"f32": 5e-4, "f16": 0.06, "bf16": 0.5, "q8_0": 1.2}
IDS = torch.randint(3, 250, (150,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", NEAR)
def test_logits_are_the_policys_at_every_position(kind, weights, engine_of, tmp_path):
    net = loaded(tiny(kind, tmp_path / kind))
    engine = engine_of(weights, max_new_tokens=1, cache="f32" if weights == "f32" else "f16")
    engine.synchronise(owner(net))
    found = torch.from_numpy(engine.logits(IDS))
    given = torch_logits(net, IDS)
    held = torch_logits(read_back(engine.path, net), IDS)
    assert found.shape == given.shape == (150, net.config.vocab_size)
    assert float((found - held).abs().max()) < NEAR[weights]
    assert float(given.std()) > 1.5
    if weights == "f32":
        assert float((found - given).abs().max()) < 1e-3
    else:  # a mismatch of its own
        assert float((found - given).abs().max()) > 5e-3


def test_of_the_labs_agent_too(engine_of):
    agent, _ = load_agent()
    ids = torch.randint(3, 103, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    engine = engine_of("f32", max_new_tokens=1, cache="f32")
    engine.synchronise(owner(agent.eval()))
    assert float((torch.from_numpy(engine.logits(ids)) - torch_logits(agent, ids)).abs().max()) < 1e-3


def test_new_weights_are_taken_once_a_step(engine_of, tmp_path):
    net = loaded(tiny("llama", tmp_path / "llama"))
    engine = engine_of("f32", max_new_tokens=1, cache="f32")
    engine.synchronise(owner(net, step=3))
    before = engine.logits(IDS)
    with torch.no_grad():
        net.model.layers[1].mlp.down_proj.weight.mul_(1.5)
    engine.synchronise(owner(net, step=3))
    assert (engine.logits(IDS) == before).all()
    engine.synchronise(owner(net, step=4))
    assert abs(engine.logits(IDS) - before).max() > 0.1
    assert float((torch.from_numpy(engine.logits(IDS)) - torch_logits(net, IDS)).abs().max()) < 1e-3


@pytest.mark.parametrize("settings", [{"temperature": 0.7}, {"temperature": 1.3, "top_k": 12, "top_p": 0.8}])
def test_it_samples_from_the_distribution_it_names(settings, engine_of, tmp_path):
    net = loaded(tiny("llama", tmp_path / "llama"))
    engine = engine_of("f32", max_new_tokens=1, cache="f32")
    engine.synchronise(owner(net))
    prompt, sampling = [5, 9, 33, 7], Sampling(**settings)
    known = by_hand(torch_logits(net, prompt)[-1], **settings)
    torch.manual_seed(3)
    drawn, logs = [], []
    for _ in range(60):
        ids, own = engine.sample([prompt] * 32, sampling, end=None)
        drawn += [row[0] for row in ids]
        logs += [row[0] for row in own]
    counts = torch.bincount(torch.tensor(drawn), minlength=len(known)).double()
    assert float(counts[known == 0].sum()) == 0
    often = known * len(drawn) >= 5
    expected = torch.cat([known[often], known[~often].sum()[None]]) * len(drawn)
    seen = torch.cat([counts[often], counts[~often].sum()[None]])
    keep = expected > 0
    statistic, freedom = float(((seen - expected)[keep] ** 2 / expected[keep]).sum()), int(keep.sum()) - 1
    assert freedom >= 5
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5  # mean and spread of chi-square
    torch.testing.assert_close(torch.tensor(logs).exp(), known[drawn].float(), rtol=1e-3, atol=1e-6)


def by_hand(logits, temperature, top_k=0, top_p=1.0):
    """Probabilities: the likeliest k, of those the fewest that hold top_p, renewed."""
    p = (logits.double() / temperature).softmax(-1)
    order = p.argsort(descending=True)
    if top_k:
        p[order[top_k:]] = 0.0
        p = p / p.sum()
    held_before = p[order].cumsum(0) - p[order]
    p[order[held_before >= top_p]] = 0.0
    return p / p.sum()


def test_rows_do_not_mix_and_stop_at_their_end(engine_of, tmp_path):
    net = loaded(tiny("qwen2", tmp_path / "qwen2"))
    engine = engine_of("f32", max_new_tokens=6, cache="f32")
    engine.synchronise(owner(net))
    prompts = [[5, 9, 33, 7], [8], [40, 41], [3] * 30]
    torch.manual_seed(0)
    written, logs = engine.sample(prompts, Sampling(), end=None)
    assert [len(row) for row in written] == [6, 6, 6, 6]
    torch.manual_seed(0)
    stopped, short = engine.sample(prompts, Sampling(), end=written[1][2])
    assert stopped[1] == written[1][: written[1].index(written[1][2]) + 1]
    assert len(stopped[1]) == len(short[1]) <= 3
    for prompt, ids, own in [
        *zip(prompts, written, logs, strict=True),
        *zip(prompts, stopped, short, strict=True),
    ]:
        known = torch_logits(net, prompt + ids)[len(prompt) - 1 : -1].log_softmax(-1)
        expected = known.gather(-1, torch.tensor(ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(own), expected, rtol=0.0, atol=1e-4)


def test_calls_that_cannot_be_and_logits_that_are_not_finite(engine_of, tmp_path):
    net = loaded(tiny("llama", tmp_path / "llama"))
    engine = engine_of("f32", max_new_tokens=2)
    with pytest.raises(ObjectiveError, match="no weights yet"):
        engine.sample([[1]], Sampling(), end=None)
    engine.synchronise(owner(net))
    with pytest.raises(ObjectiveError, match="prompt 1 has no tokens"):
        engine.sample([[1], []], Sampling(), end=None)
    with pytest.raises(ObjectiveError, match=r"could not decode 1 tokens \(code -1\): .*invalid token"):
        engine.logits([net.config.vocab_size])
    assert engine.sample([], Sampling(), end=None) == ([], [])
    with torch.no_grad():
        net.model.norm.weight.fill_(3e38)
    engine.synchronise(owner(net, step=1))
    with pytest.raises(ObjectiveError, match="not finite at 2 of 2 tokens"):
        engine.logits([5, 6])


def test_a_file_that_is_none_is_named(engine_of, tmp_path):
    from trimtab.training.llamacpp.context import Loaded

    engine_of(max_new_tokens=2)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"no model")
    with pytest.raises(ObjectiveError, match=r"could not load .*bad\.gguf: .*magic"):
        Loaded(bad, 5)
    engine = engine_of(max_new_tokens=2)
    engine.synchronise(owner(loaded(tiny("llama", tmp_path / "llama"))))
    with pytest.raises(ObjectiveError, match=r"reads \d+ words in .*, not 5"):
        Loaded(engine.path, 5)
